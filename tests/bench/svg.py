"""Pictures as SVG text: rectangles, lines, dots, text. Just enough for our charts."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

FONT: Final = "font-family: system-ui, sans-serif; font-size: 12px"
INK: Final = "#24292f"
FAINT: Final = "#8c959f"
GRID: Final = "#d8dee4"
PAPER: Final = "#ffffff"


class Picture:
    """A drawing of fixed size; y grows downwards. `str` gives the document."""

    def __init__(self, width: int, height: int, *, title: str) -> None:
        self._width, self._height = width, height
        self._parts = [f"<title>{escape(title)}</title>"]
        self.rectangle(0, 0, width, height, fill=PAPER)

    def rectangle(self, x: float, y: float, width: float, height: float, *, fill: str, hint: str = "") -> None:
        """Draw a filled box; it shows the hint when the mouse is over it."""
        self._add("rect", {"x": x, "y": y, "width": width, "height": height, "fill": fill}, hint)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, color: str = GRID, dashes: str = "") -> None:
        """Draw a thin line."""
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": color, "stroke-dasharray": dashes})

    def dot(self, x: float, y: float, *, color: str, hint: str = "") -> None:
        """Draw a small translucent dot."""
        self._add("circle", {"cx": x, "cy": y, "r": 3.0, "fill": color, "fill-opacity": 0.45}, hint)

    def text(self, x: float, y: float, words: str, *, color: str = INK, anchor: str = "start") -> None:
        """Write one line with its baseline at y. `anchor` is start, middle or end."""
        self._add("text", {"x": x, "y": y, "fill": color, "text-anchor": anchor}, content=words)

    def __str__(self) -> str:
        size = f'width="{self._width}" height="{self._height}" viewBox="0 0 {self._width} {self._height}"'
        body = "\n".join(self._parts)
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{FONT}">\n{body}\n</svg>\n'

    def _add(self, element: str, attributes: dict[str, float | str], hint: str = "", content: str = "") -> None:
        written = " ".join(f"{name}={quoteattr(_plain(value))}" for name, value in attributes.items() if value != "")
        inner = f"<title>{escape(hint)}</title>" if hint else escape(content)
        self._parts.append(f"<{element} {written}>{inner}</{element}>" if inner else f"<{element} {written}/>")


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
