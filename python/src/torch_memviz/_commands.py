"""A function for each command of memviz.

The options are those of the command, as listed by `memviz COMMAND --help`: `by="category"` is `--by category`,
`no_infer=True` is `--no-infer`, a list repeats the option for each item, and None or False omits it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import answers
from ._binary import binary, run
from ._decode import decode
from ._errors import MemvizError, OptionError, in_python
from ._picture import Page, Picture
from ._source import Input, Source
from ._table import Answer, Answers, Outcomes, asked, with_format

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import _options

A = TypeVar("A", bound=Answer)

#: The format that returns an answer and its table after reading the recording once.
WITH_ROWS = "json+csv"

#: Options that these functions set themselves.
OURS = ("format", "output", "o")

#: Options whose output is not an answer.
HELP = ("help", "help_common")


def triage(path: Input, **options: Unpack[_options.TriageOptions]) -> answers.TriageAnswer:
    """Summarize a recording: its failed request or its peak, what holds the memory, and what to run next."""
    return _answer(answers.TriageAnswer, "triage", [path], options)


def info(path: Input, **options: Unpack[_options.InfoOptions]) -> answers.InfoAnswer:
    """Show what a file contains: entries, devices, steps, settings."""
    return _answer(answers.InfoAnswer, "info", [path], options)


def peak(path: Input, **options: Unpack[_options.PeakOptions]) -> answers.PeakAnswer:
    """Find the peak of each device, and what holds it: `peak(path, by="category", at="oom")`."""
    return _answer(answers.PeakAnswer, "peak", [path], options)


def blocks(path: Input, **options: Unpack[_options.BlocksOptions]) -> answers.BlocksAnswer:
    """Show individual blocks: `blocks(path, address=[0x7f0a2c000000])`, or the largest at an instant."""
    return _answer(answers.BlocksAnswer, "blocks", [path], options)


def fragmentation(path: Input, **options: Unpack[_options.FragmentationOptions]) -> answers.FragmentationAnswer:
    """Show how much memory is reserved but unused, and what keeps it reserved."""
    return _answer(answers.FragmentationAnswer, "fragmentation", [path], options)


def oom(path: Input, **options: Unpack[_options.OomOptions]) -> answers.OomAnswer:
    """Explain every failed request."""
    return _answer(answers.OomAnswer, "oom", [path], options)


def leaks(path: Input, **options: Unpack[_options.LeaksOptions]) -> answers.LeaksAnswer:
    """Find what grows from step to step."""
    return _answer(answers.LeaksAnswer, "leaks", [path], options)


def ledger(path: Input, **options: Unpack[_options.LedgerOptions]) -> answers.LedgerAnswer:
    """Show what uses the device: PyTorch, NCCL, the CUDA context, other processes."""
    return _answer(answers.LedgerAnswer, "ledger", [path], options)


def nsys(path: Input, **options: Unpack[_options.NsysOptions]) -> answers.NsysAnswer:
    """Show the device memory of all libraries in a SQLite export of Nsight Systems."""
    return _answer(answers.NsysAnswer, "nsys", [path], options)


def checkpoint(path: Input, **options: Unpack[_options.CheckpointOptions]) -> answers.CheckpointAnswer:
    """Predict what activation checkpointing would save, and where."""
    return _answer(answers.CheckpointAnswer, "checkpoint", [path], options)


def simulate(path: Input, **options: Unpack[_options.SimulateOptions]) -> answers.SimulateAnswer:
    """Replay the requests of a recording with other settings or another capacity."""
    return _answer(answers.SimulateAnswer, "simulate", [path], options)


def fit(*paths: Input, **options: Unpack[_options.FitOptions]) -> answers.FitAnswer:
    """Find what makes a recording fit on a device, or predict from two or three recordings which batch sizes fit."""
    return _answer(answers.FitAnswer, "fit", paths, options)


def fix(path: Input, **options: Unpack[_options.FixOptions]) -> answers.FixAnswer:
    """Write the fixes of known mistakes as a diff: `fix(path, source="src").diff`. Changes no files."""
    return _answer(answers.FixAnswer, "fix", [path], options, accepted=(0, 1))


def diff(base: Input, new: Input, **options: Unpack[_options.DiffOptions]) -> answers.DiffAnswer:
    """Compare two recordings, line by line."""
    return _answer(answers.DiffAnswer, "diff", [base, new], options)


def check(*paths: Input, **options: Unpack[_options.CheckOptions]) -> Outcomes[answers.CheckOutcome]:
    """Check budgets from options or from `memviz.toml`, and return an outcome for each recording.

    A budget that is exceeded or cannot be judged is a verdict, not an error.
    """
    return cast("Outcomes[answers.CheckOutcome]", _lines(Outcomes, answers.CheckOutcome, "check", paths, options))


def ranks(*paths: Input, **options: Unpack[_options.RanksOptions]) -> Answers[answers.RanksAnswer]:
    """Compare the ranks of a run: one answer for each rank, and one for all ranks at the end."""
    return _lines(Answers, answers.RanksAnswer, "ranks", paths, options)


def timeline(path: Input, **options: Unpack[_options.TimelineOptions]) -> Picture:
    """Draw live memory over time, stacked by what holds it."""
    return Picture(_run("timeline", [path], options, "svg"))


def curve(path: Input, **options: Unpack[_options.TimelineOptions]) -> answers.TimelineAnswer:
    """Return memory over time as data: `curve(path, by="category", points=500).to_pandas()`."""
    return _answer(answers.TimelineAnswer, "timeline", [path], options)


def flamegraph(path: Input, **options: Unpack[_options.FlamegraphOptions]) -> Picture:
    """Draw live bytes by call stack."""
    return Picture(_run("flamegraph", [path], options, "svg"))


def report(path: Input, format: str = "html", **options: Unpack[_options.ReportOptions]) -> Page:  # noqa: A002
    """Create a report for an issue: `html`, `svg` or `markdown`. A notebook shows it; `save(path)` writes it."""
    return Page(_run("report", [path], options, format), format)


def view(path: Input, **options: Unpack[_options.ViewOptions]) -> Page:
    """Create an interactive HTML page that contains the recording. A notebook shows it; `save(path)` writes it."""
    return Page(_run("view", [path], options, None))


def _answer(kind: type[A], command: str, inputs: Sequence[Input], options: Any, accepted: Sequence[int] = ()) -> A:
    source = Source.of(inputs)
    words = _words(command, source.paths, options)
    values, csv = _objects(_asked(with_format(words, WITH_ROWS), source, accepted))
    if len(values) != 1:
        raise MemvizError(f"expected one answer of memviz, found {len(values)}")
    answer = cast(A, decode(kind, values[0]))
    asked(answer, words, source, csv)
    return answer


def _lines(
    answer_kind: type[Answers[Any]], kind: Any, command: str, inputs: Sequence[Input], options: Any
) -> Answers[Any]:
    source = Source.of(inputs)
    words = _words(command, source.paths, options)
    # The outcome of a recording also sets the exit code, so nonzero codes are accepted.
    has_rows = answer_kind is not Outcomes
    text = _asked(with_format(words, WITH_ROWS if has_rows else "json"), source, accepted=(0, 1, 2))
    values, csv = _objects(text)
    answer = answer_kind(decode(kind, value) for value in values)
    asked(answer, words, source, csv)
    return answer


def _run(command: str, inputs: Sequence[Input], options: Any, kind: str | None) -> str:
    source = Source.of(inputs)
    words = _words(command, source.paths, options)
    return _asked(with_format(words, kind) if kind is not None else words, source)


def _asked(words: Sequence[str], source: Source, accepted: Sequence[int] = ()) -> str:
    try:
        text = run(words, accepted)
    except MemvizError as error:
        raise in_python(error, words[0], source.paths) from None
    if not text.strip():
        raise MemvizError(f"expected an answer of {binary()}, found no output")
    return text


def _objects(text: str) -> tuple[list[Any], str | None]:
    """Split an answer into its consecutive JSON objects and the table that follows them."""
    values: list[Any] = []
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise MemvizError(f"expected a JSON object of {binary()}, found {text[:40]!r}")
        text = text[end:]
        if value.keys() == {"csv"}:
            return values, value["csv"]
        version = value.get("schema_version")
        if version != answers.SCHEMA_VERSION:
            raise MemvizError(f"expected answers of version {answers.SCHEMA_VERSION}, found {version}")
        values.append(value)
    return values, None


def _words(command: str, paths: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Build the command line for recordings and options."""
    words = [command]
    for keyword, value in options.items():
        name = keyword.rstrip("_")
        flag = f"--{name.replace('_', '-')}"
        if name in OURS:
            raise OptionError(f"expected an option of the answer, found {keyword}, which the function sets itself")
        if not name.isidentifier() or name in HELP:
            raise OptionError(f"{command}() got an unexpected keyword argument {keyword!r}")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        items = [value] if isinstance(value, str | int | float | os.PathLike) else value
        # One word, so that a value that starts with a dash is not parsed as an option.
        words += [f"{flag}={os.fspath(item) if isinstance(item, os.PathLike) else item}" for item in items]
    # After --, so that a file name is not parsed as an option either.
    return [*words, "--", *paths]
