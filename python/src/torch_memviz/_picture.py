"""Pictures and pages that a notebook shows inline."""

from __future__ import annotations

import base64
import html
import os
from dataclasses import dataclass, field
from pathlib import Path

#: Height of a page in a notebook, in pixels.
HEIGHT = 720


@dataclass(frozen=True)
class Picture:
    """A picture drawn by memviz. A notebook shows it if it is the value of a cell."""

    svg: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, replacing an existing one."""
        Path(path).expanduser().write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # As a separate image: the styles and names of several pictures on one page must not clash.
        data = base64.b64encode(self.svg.encode()).decode()
        return f'<img src="data:image/svg+xml;base64,{data}" style="max-width: 100%" alt="A picture by memviz">'

    def __repr__(self) -> str:
        return f"<Picture, {len(self.svg) / 1000:.0f} KB of SVG: .save(path) writes it>"


@dataclass(frozen=True)
class Page:
    """A page created by memviz. A notebook shows it if it is the value of a cell."""

    #: The complete contents of the file.
    text: str
    #: `html`, `svg` or `markdown`.
    format: str = "html"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, replacing an existing one."""
        Path(path).expanduser().write_text(self.text, encoding="utf-8")

    def _repr_html_(self) -> str | None:
        if self.format == "svg":
            return Picture(self.text)._repr_html_()
        if self.format != "html":
            return None
        # A recording may come from an untrusted source: the page must not access the notebook.
        return (
            f'<iframe sandbox="allow-scripts" style="width: 100%; height: {HEIGHT}px; border: 0" '
            f'srcdoc="{html.escape(self.text)}"></iframe>'
        )

    def _repr_markdown_(self) -> str | None:
        return self.text if self.format == "markdown" else None

    def __repr__(self) -> str:
        return f"<Page, {len(self.text) / 1000:.0f} KB of {self.format}: .save(path) writes it; .text contains it>"

    __str__ = __repr__
