"""Pictures: SVG that a notebook shows in line."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Picture:
    """A picture that memviz drew. A notebook shows it where it is the value of a cell."""

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, in the place of what is there."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # As an image of its own: the styles and names of several pictures on one page must not meet.
        data = base64.b64encode(self.svg.encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{data}" style="max-width: 100%" alt="A picture by memviz">'

    def __repr__(self) -> str:
        return f"Picture({len(self.svg)} characters of SVG)"
