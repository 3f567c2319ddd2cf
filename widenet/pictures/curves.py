"""Curves over a common axis, as SVG without a script."""

import math
from collections.abc import Mapping, Sequence

from widenet.pictures.html import Html, brief, joined, tag

Points = Sequence[tuple[float, float]]

COLOURS = ("#3b7dd8", "#e0772b", "#2f9e6e", "#c2498d", "#8a63d2", "#a8861b", "#2aa3b8", "#d0504a")
"""Told apart on white and on black."""

_WIDTH, _HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 36
_MOST_DOTS = 60


def curves(title: str, lines: Mapping[str, Points], across: str = "epoch", named: bool = True) -> Html:
    """A figure of lines (x, y) by name; its legend where there are several.

    Every point says its numbers when pointed at.

    across: what x is, a whole number. named: False where a legend stands elsewhere.
    Points that are not finite are left out; without any, the figure says so.
    """
    shown = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in lines.items()
    }
    points = [point for line in shown.values() for point in line]
    caption = tag("figcaption", tag("b", title), legend(list(lines)) if named and len(lines) > 1 else "")
    if not points:
        return tag("figure", caption, tag("p", "no values"))
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    xs = [x for x in ticks([first, last], 5, whole=True) if first <= x <= last]
    ys = ticks([y for _, y in points], 4)
    frame = _Frame(first, max(last, first + 1), ys[0], ys[-1])
    drawn = [
        _line(line, colour(place), frame, name if len(lines) > 1 else title, across)
        for place, (name, line) in enumerate(shown.items())
    ]
    return tag("figure", caption, picture(_WIDTH, _HEIGHT, title, [*_axes(frame, xs, ys, across), *drawn]))


def colour(place: int) -> str:
    """The colour of the line at that place of a legend."""
    return COLOURS[place % len(COLOURS)]


def legend(names: Sequence[str]) -> Html:
    """The names of lines beside their colours."""
    entries = [
        tag("span", tag("span", "\u25cf ", style=f"color:{colour(place)}"), name)
        for place, name in enumerate(names)
    ]
    return tag(
        "span", *entries, class_="legend", style="display:flex;flex-wrap:wrap;gap:0 1em;font-size:smaller"
    )


def picture(width: float, height: float, title: str, content: Sequence[object]) -> Html:
    """An SVG of some size that shrinks with its surroundings."""
    attributes = {
        "viewBox": f"0 0 {width:g} {height:g}",
        "style": f"width:100%;max-width:{width * 1.2:g}px",
        "font_size": 11,
    }
    return tag("svg", *content, **attributes, role="img", aria_label=title, font_family="inherit")


def ticks(values: Sequence[float], about: int, whole: bool = False) -> list[float]:
    """Round numbers at even distances that reach from below the smallest value to above the largest.
    whole: whole numbers.
    """
    low, high = min(values), max(values)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    if high - low <= abs(high) * 1e-12:
        low, high = low - (1 if whole else abs(low) / 2 or 1), high + (1 if whole else abs(high) / 2 or 1)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, 1) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


class _Frame:
    """Where numbers lie in the picture."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self.left, self.bottom = left, bottom
        self.across = (_WIDTH - _LEFT - _RIGHT) / (right - left)
        self.up = (_HEIGHT - _TOP - _BOTTOM) / (top - bottom)

    def x(self, number: float) -> float:
        return _LEFT + (number - self.left) * self.across

    def y(self, number: float) -> float:
        return _HEIGHT - _BOTTOM - (number - self.bottom) * self.up


def _axes(frame: _Frame, xs: Sequence[float], ys: Sequence[float], across: str) -> list[Html]:
    faint = {"stroke": "currentColor", "stroke_opacity": "0.15"}
    drawn = []
    for number in ys:
        y = frame.y(number)
        drawn.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, **faint))
        drawn.append(tag("text", brief(number), x=_LEFT - 6, y=y + 4, text_anchor="end", fill="currentColor"))
    foot = _HEIGHT - _BOTTOM
    for number in xs:
        drawn.append(tag("line", x1=frame.x(number), x2=frame.x(number), y1=foot, y2=foot + 4, **faint))
        drawn.append(
            tag(
                "text",
                brief(number),
                x=frame.x(number),
                y=foot + 16,
                text_anchor="middle",
                fill="currentColor",
            )
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(
        tag(
            "text",
            across,
            x=middle,
            y=_HEIGHT - 4,
            text_anchor="middle",
            fill="currentColor",
            fill_opacity="0.7",
        )
    )
    return drawn


def _line(line: Points, stroke: str, frame: _Frame, name: str, across: str) -> Html:
    places = " ".join(f"{frame.x(x):.2f},{frame.y(y):.2f}" for x, y in line)
    path = tag("polyline", points=places, fill="none", stroke=stroke, stroke_width=2, stroke_linejoin="round")
    dots = [
        tag(
            "circle",
            tag("title", f"{name}, {across} {brief(x)}: {y:.6g}"),
            cx=frame.x(x),
            cy=frame.y(y),
            r=3 if len(line) <= _MOST_DOTS else 5,
            fill=stroke,
            fill_opacity=None if len(line) <= _MOST_DOTS else 0,
        )
        for x, y in line
    ]
    return joined([path, *dots])
