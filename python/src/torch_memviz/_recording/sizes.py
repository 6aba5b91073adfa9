"""Parses and formats sizes, and converts the size of a ring buffer to a number of entries."""

from __future__ import annotations

import re

UNITS = {
    "b": 1,
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}

#: Conservative estimate of the host memory for an entry with its stacks, in bytes. Measured: 420, plus 20 for each
#: Python frame of the stack and 8 to 16 for each C++ frame.
ENTRY_BYTES = {"python": 2048, "all": 4096}


def size(value: str | int) -> int:
    """Convert a size to bytes: `"512 MiB"`, `"1.5GiB"`, `"2 GB"` (powers of 1000), or a number of bytes.

    Raises:
        ValueError: if it is not a size.
    """
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
    unit = UNITS.get(found.group(2).lower() or "b") if found else None
    if found is None or unit is None:
        raise ValueError(f"expected a size such as 4 GiB, found {value!r}")
    return int(float(found.group(1)) * unit)


def ring(value: str | int, stacks: str) -> int:
    """Return the number of entries that a ring buffer of this size keeps.

    Raises:
        ValueError: if it would keep fewer than 1000 entries, which is too few to analyze.
    """
    entries = size(value) // ENTRY_BYTES[stacks]
    if entries < 1000:
        raise ValueError(f"expected a ring of at least {1000 * ENTRY_BYTES[stacks] // 1024} KiB, found {value!r}")
    return entries


def shown(count: int) -> str:
    """Format a number of bytes as PyTorch does."""
    power = max(0, min((count.bit_length() - 1) // 10, 4))
    return f"{count / 1024**power:.2f} {'KMGT'[power - 1]}iB" if power else f"{count} bytes"
