"""Answers as tables: the rows that `--format csv` writes, with their documented columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ._binary import MemvizError, run

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T")

Cell = str | int | float | bool | None


class Answer:
    """What a command answered, and how to have it as a table."""

    #: The command line that made it, without the format; None where it was read from a file.
    _asked: Sequence[str] | None = None

    def to_rows(self) -> list[dict[str, Cell]]:
        """Give the answer as rows, the columns being those of the command's `--format csv`.

        The recording is read again.

        Raises:
            MemvizError: when the command has no rows, or the recording is gone.
        """
        if self._asked is None:
            raise MemvizError("expected an answer of a command that was run here, found one that was read")
        return rows(run(with_format(self._asked, "csv")))

    def to_pandas(self) -> pandas.DataFrame:
        """Give the rows as a data frame of pandas, which has to be installed."""
        import pandas

        return pandas.DataFrame(self.to_rows()).convert_dtypes()

    def to_arrow(self) -> pyarrow.Table:
        """Give the rows as a table of Arrow, for which pyarrow has to be installed."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_rows())


class Answers(tuple[T, ...], Answer):
    """The answers about several recordings, in order; together they are one table."""


def with_format(command: Sequence[str], name: str) -> list[str]:
    """A command line with the format of its answer, in front of what are no options."""
    return [command[0], f"--format={name}", *command[1:]]


def asked(answer: Answer, command: Sequence[str]) -> None:
    """Remember how an answer was asked for. Answers are frozen for those who get them."""
    object.__setattr__(answer, "_asked", command)


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
