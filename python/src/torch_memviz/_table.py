"""Answers as tables: the rows that `--format csv` writes, with their documented columns."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._binary import MemvizError, run
from ._picture import Picture
from ._source import Source

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T")

Cell = str | int | float | bool | None

#: Rows that a notebook shows.
SHOWN_ROWS = 20

#: Columns that a notebook does not show: they are long, or the same in each row.
LONG = ("stack", "complete_history", "anomalies", "by", "metric", "entry", "bound")


#: Commands that answer in words and rows alone.
WITHOUT_PICTURE = ("triage", "info", "peak", "oom", "leaks", "check")


class Answer:
    """What a command answered, and how to have it as text, as a table or as a picture."""

    #: The command line that made it, without the format; None where it is a part of another answer.
    _asked: Sequence[str] | None = None
    #: What it is about.
    _source: Source | None = None
    #: Its table, which came with it.
    _csv: str | None = None

    def to_rows(self) -> list[dict[str, Cell]]:
        """Give the answer as rows, the columns being those of the command's `--format csv`.

        Raises:
            MemvizError: when this is a part of another answer, which has the rows.
        """
        if self._csv is None:
            raise MemvizError("expected the answer of a command, found a part of one: the whole has the rows")
        return rows(self._csv)

    def to_pandas(self) -> pandas.DataFrame:
        """Give the rows as a data frame of pandas, which has to be installed."""
        import pandas

        return pandas.DataFrame(self.to_rows()).convert_dtypes()

    def to_arrow(self) -> pyarrow.Table:
        """Give the rows as a table of Arrow, for which pyarrow has to be installed."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_rows())

    def picture(self) -> Picture:
        """Draw the answer, as `-o` with a name in `.svg` does.

        Raises:
            MemvizError: when the command has no picture, or the recording is another one by now.
        """
        if self._asked is not None and self._asked[0] in WITHOUT_PICTURE:
            others = "timeline(), flamegraph() and report() draw the recording"
            raise MemvizError(f"expected an answer that has a picture, found that of {self._asked[0]}: {others}")
        return Picture(self._as("svg"))

    def __str__(self) -> str:
        """Give what the command prints."""
        try:
            return self._as("text").rstrip("\n")
        except MemvizError as error:
            return f"{self!r}\n{error}"

    def __repr__(self) -> str:
        """Say what it is: all that it holds fills screens."""
        count = f", {len(rows(self._csv))} rows" if self._csv is not None else ""
        return f"<{type(self).__name__}{count}: print() shows it, .to_rows() and .to_pandas() have its table>"

    def _repr_html_(self) -> str:
        try:
            return as_html(self.to_rows())
        except MemvizError:
            return f"<pre>{html.escape(str(self))}</pre>"

    def _as(self, name: str) -> str:
        """The answer in another format, about the very recording that this one is about."""
        if self._asked is None or self._source is None:
            raise MemvizError("expected the answer of a command, found a part of one")
        self._source.check()
        # That a budget is exceeded is an answer, too.
        return run(with_format(self._asked, name), accepted=(0, 1, 2))


class Answers(tuple[T, ...], Answer):
    """The answers about several recordings, in order; together they are one table."""


class Outcomes(Answers[T]):
    """What `check` says of several recordings. A row is a budget on a device."""

    def to_rows(self) -> list[dict[str, Cell]]:
        """Give a row for each budget on each device; `path` says of which recording."""
        checks = [(outcome, check) for outcome in self for check in getattr(outcome, "checks", ())]
        table = [{"path": _path(outcome), **_scalars(check)} for outcome, check in checks]
        columns = dict.fromkeys(name for row in table for name in row)
        return [{name: row.get(name) for name in columns} for row in table]


def _path(outcome: Any) -> str:
    return str(outcome.input.path)


def _scalars(value: Any) -> dict[str, Cell]:
    """The fields of a dataclass that are no lists or objects."""
    held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: item for name, item in held.items() if item is None or isinstance(item, str | int | float)}


def with_format(command: Sequence[str], name: str) -> list[str]:
    """A command line with the format of its answer, in front of what are no options."""
    return [command[0], f"--format={name}", *command[1:]]


def asked(answer: Answer, command: Sequence[str], source: Source, csv: str | None = None) -> None:
    """Remember how an answer was asked for, and its table. Answers are frozen for those who get them."""
    object.__setattr__(answer, "_asked", command)
    object.__setattr__(answer, "_source", source)
    object.__setattr__(answer, "_csv", csv)


def as_html(table: list[dict[str, Cell]]) -> str:
    """Rows as a table of HTML, with sizes for people."""
    if not table:
        return "<p>no rows</p>"
    columns = [name for name in table[0] if name not in LONG]
    columns = [name for name in columns if any(row[name] is not None for row in table)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_cell(name, row[name]))}</td>' for name in columns)}</tr>"
        for row in table[:SHOWN_ROWS]
    )
    more = f"<p>{len(table) - SHOWN_ROWS} more rows</p>" if len(table) > SHOWN_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(column: str, value: Cell) -> str:
    from ._recording.sizes import shown

    if value is None:
        return ""
    if column.endswith("bytes") and isinstance(value, int):
        return shown(value) if value >= 0 else f"-{shown(-value)}"
    return str(value)


def rows(text: str) -> list[dict[str, Cell]]:
    """CSV to rows. A column is of one type: whole numbers, numbers, yes or no, or text; what is empty is None."""
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        return []
    header, *body = lines
    columns = [_column([line[index] for line in body]) for index in range(len(header))]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _column(cells: list[str]) -> list[Cell]:
    """The cells of a column, in the narrowest type that holds all of them."""
    filled = [cell for cell in cells if cell]
    if filled and all(cell in ("true", "false") for cell in filled):
        return [cell == "true" if cell else None for cell in cells]
    for number in (int, float):
        try:
            return [number(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]
