"""Titles of pictures: a heading, lines below it, and warnings, wrapped so that nothing is cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

#: Points: size of the heading and of the lines. The height of a line is its size times the leading.
_HEADING_PT, _LINE_PT, _LEADING = 14.0, 9.0, 1.35

#: Inches: space above and below a title, and at either side of it.
_PADDING_IN, _MARGIN_IN = 0.1, 0.25

_POINTS_PER_INCH = 72.0

#: Colours of lines and of warnings.
_LINE_COLOUR, _WARNING_COLOUR = "#404040", "#b3261e"


@dataclass(frozen=True)
class Title:
    """The title of a picture: a heading, lines, and warnings."""

    heading: str
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Line:
    text: str
    size: float
    weight: str
    colour: str

    @property
    def height_in(self) -> float:
        return self.size * _LEADING / _POINTS_PER_INCH


def height_in(title: Title, width_in: float) -> float:
    """The height of `title` above a picture of this width, in inches."""
    return 2 * _PADDING_IN + sum(line.height_in for line in _lines(title, width_in))


def draw(part: Any, title: Title, width_in: float) -> None:
    """Draw `title` into the subfigure `part`, which is `height_in(title, width_in)` high."""
    whole = height_in(title, width_in)
    below = whole - _PADDING_IN
    for line in _lines(title, width_in):
        place = {"ha": "center", "va": "top", "fontsize": line.size, "fontweight": line.weight}
        part.text(0.5, below / whole, line.text, color=line.colour, parse_math=False, **place)
        below -= line.height_in


def wrapped(text: str, width_in: float, size: float, weight: str = "normal") -> list[str]:
    """`text` in lines that are at most `width_in` inches wide at `size` points. A longer word is broken."""
    lines, line = [], ""
    for word in text.split():
        candidate = f"{line} {word}" if line else word
        if _width_in(candidate, size, weight) <= width_in:
            line = candidate
            continue
        if line:
            lines.append(line)
        line = word
        while _width_in(line, size, weight) > width_in:
            widths = (_width_in(line[:n], size, weight) for n in range(1, len(line)))
            fitting = max(1, sum(1 for _ in takewhile(lambda width: width <= width_in, widths)))
            lines.append(line[:fitting])
            line = line[fitting:]
    return [*lines, line] if line else lines


def _lines(title: Title, width_in: float) -> list[_Line]:
    free = width_in - 2 * _MARGIN_IN
    parts = [(title.heading, _HEADING_PT, "bold", "black")]
    parts += [(text, _LINE_PT, "normal", _LINE_COLOUR) for text in title.lines]
    parts += [(text, _LINE_PT, "bold", _WARNING_COLOUR) for text in title.warnings]
    return [
        _Line(line, size, weight, colour)
        for text, size, weight, colour in parts
        for line in wrapped(text, free, size, weight)
    ]


@cache
def _width_in(text: str, size: float, weight: str) -> float:
    font = FontProperties(size=size, weight=weight)
    width_pt, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width_pt) / _POINTS_PER_INCH
