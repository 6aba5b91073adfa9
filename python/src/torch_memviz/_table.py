"""Answers as tables: the rows of `--format csv`, with their documented columns."""

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

#: Maximum number of rows shown in a notebook.
SHOWN_ROWS = 20

#: Columns hidden in a notebook: they are long, or the same in each row.
LONG = ("stack", "complete_history", "anomalies", "by", "metric", "entry", "bound")


#: Commands that have only text and rows.
WITHOUT_PICTURE = ("triage", "info", "peak", "blocks", "oom", "leaks", "ledger", "nsys", "check")

#: Commands that have only a picture and rows.
WITHOUT_TEXT = ("timeline",)


class Answer:
    """The answer of a command, which converts to text, a table or a picture."""

    #: The command line that produced it, without the format; None for a part of another answer.
    _asked: Sequence[str] | None = None
    #: The recordings that it describes.
    _source: Source | None = None
    #: Its table as CSV, produced by the same run.
    _csv: str | None = None

    def to_rows(self) -> list[dict[str, Cell]]:
        """Return the answer as rows. The columns are those of the command's `--format csv`.

        Raises:
            MemvizError: if this is only a part of an answer; the complete answer has the rows.
        """
        if self._csv is None:
            raise MemvizError("expected the answer of a command, found a part of one: the complete answer has the rows")
        return rows(self._csv)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas data frame. Requires pandas."""
        import pandas

        return pandas.DataFrame(self.to_rows()).convert_dtypes()

    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table. Requires pyarrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_rows())

    def picture(self) -> Picture:
        """Draw the answer, like `-o FILE.svg`.

        Raises:
            MemvizError: if the command has no picture, or the recording has changed since.
        """
        if self._asked is not None and self._asked[0] in WITHOUT_PICTURE:
            others = "timeline(), flamegraph() and report() draw the recording"
            raise MemvizError(f"expected an answer that has a picture, found that of {self._asked[0]}: {others}")
        return Picture(self._as("svg"))

    def __str__(self) -> str:
        """Return the text that the command prints; for a curve, its rows as CSV."""
        if self._csv is not None and self._asked is not None and self._asked[0] in WITHOUT_TEXT:
            return self._csv.rstrip("\n")
        try:
            return self._as("text").rstrip("\n")
        except MemvizError as error:
            return f"{self!r}\n{error}"

    def __repr__(self) -> str:
        """Return a short summary: the full contents would fill several screens."""
        count = f", {len(rows(self._csv))} rows" if self._csv is not None else ""
        return f"<{type(self).__name__}{count}: print() shows it; .to_rows() and .to_pandas() return its table>"

    def _repr_html_(self) -> str:
        try:
            return as_html(self.to_rows())
        except MemvizError:
            return f"<pre>{html.escape(str(self))}</pre>"

    def _as(self, name: str) -> str:
        """Return the answer in another format, after checking that the recording has not changed."""
        if self._asked is None or self._source is None:
            raise MemvizError("expected the answer of a command, found a part of one")
        self._source.check()
        # An exceeded budget is also an answer.
        return run(with_format(self._asked, name), accepted=(0, 1, 2))


class Answers(tuple[T, ...], Answer):
    """The answers for several recordings, in order. Together they form one table."""


class Outcomes(Answers[T]):
    """The results of `check` for several recordings. Each row is a budget on a device."""

    def to_rows(self) -> list[dict[str, Cell]]:
        """Return a row for each budget on each device. `path` names the recording."""
        checks = [(outcome, check) for outcome in self for check in getattr(outcome, "checks", ())]
        table = [{"path": _path(outcome), **_scalars(check)} for outcome, check in checks]
        columns = dict.fromkeys(name for row in table for name in row)
        return [{name: row.get(name) for name in columns} for row in table]


def _path(outcome: Any) -> str:
    return str(outcome.input.path)


def _scalars(value: Any) -> dict[str, Cell]:
    """Return the fields of a dataclass that are not lists or objects."""
    held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: item for name, item in held.items() if item is None or isinstance(item, str | int | float)}


def with_format(command: Sequence[str], name: str) -> list[str]:
    """Insert the output format into a command line, before the positional arguments."""
    return [command[0], f"--format={name}", *command[1:]]


def asked(answer: Answer, command: Sequence[str], source: Source, csv: str | None = None) -> None:
    """Store the command line, source and table of an answer, which is a frozen dataclass."""
    object.__setattr__(answer, "_asked", command)
    object.__setattr__(answer, "_source", source)
    object.__setattr__(answer, "_csv", csv)


def as_html(table: list[dict[str, Cell]]) -> str:
    """Format rows as an HTML table with human-readable sizes."""
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
    """Convert CSV to rows. Each column has one type: int, float, bool or str. Empty cells are None."""
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        return []
    header, *body = lines
    columns = [_column([line[index] for line in body]) for index in range(len(header))]
    return [dict(zip(header, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _column(cells: list[str]) -> list[Cell]:
    """Convert the cells of a column to the narrowest type that fits all of them."""
    filled = [cell for cell in cells if cell]
    if filled and all(cell in ("true", "false") for cell in filled):
        return [cell == "true" if cell else None for cell in cells]
    for number in (int, float):
        try:
            return [number(cell) if cell else None for cell in cells]
        except ValueError:
            continue
    return [cell or None for cell in cells]
