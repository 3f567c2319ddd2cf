"""Line charts, as SVG."""

import math
from collections.abc import Mapping, Sequence

from widenet.pictures.html import Html, brief, joined, tag

Points = Sequence[tuple[float, float]]

COLOURS = ("#3b7dd8", "#e0772b", "#2f9e6e", "#c2498d", "#8a63d2", "#a8861b", "#2aa3b8", "#d0504a")
"""Colours of lines, distinguishable on white and on black."""

_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 20, 36
_LETTER = 7
"""Width of a letter."""
_MOST_DOTS, _MOST_HINTS = 60, 200


def curves(
    title: str,
    lines: Mapping[str, Points],
    across: str = "epoch",
    named: bool = True,
    mark: tuple[float, str] | None = None,
) -> Html:
    """Draw one or more lines over a common axis of whole numbers.

    Pointing at a dot shows its numbers; a long line has at most 200 of them. Points that are not finite are
    left out; if none is left, the figure says "no values".

    Args:
        title: Caption of the figure.
        lines: The points (x, y) of each line, by its name.
        across: Label of the x axis.
        named: Whether to draw a legend if there are several lines.
        mark: A number of the x axis that a dashed line marks, and what it says.
    """
    finite = {
        name: [(x, y) for x, y in line if math.isfinite(x) and math.isfinite(y)]
        for name, line in lines.items()
    }
    points = [point for line in finite.values() for point in line]
    several = len(lines) > 1
    caption = tag("figcaption", tag("b", title), legend(list(lines)) if named and several else "")
    if not points:
        return tag("figure", caption, tag("p", "no values"))
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    xs = [x for x in ticks([first, last], 5, whole=True) if first <= x <= last]
    ys = ticks([y for _, y in points], 4)
    frame = _Frame(first, max(last, first + 1), ys[0], ys[-1])
    shapes = [
        _line(line, colour(position), frame, name if several else title, across)
        for position, (name, line) in enumerate(finite.items())
    ]
    marks = [] if mark is None or not first <= mark[0] <= last else [_mark(*mark, frame)]
    axes = _axes(frame, xs, ys, across)
    return tag("figure", caption, picture(_WIDTH, _HEIGHT, title, [*axes, *marks, *shapes]))


def colour(position: int) -> str:
    """The colour of the line at a position of the legend."""
    return COLOURS[position % len(COLOURS)]


def legend(names: Sequence[str]) -> Html:
    """The names of lines beside their colours."""
    entries = [tag("span", swatch(position), tag("span", name)) for position, name in enumerate(names)]
    style = "display:flex;flex-wrap:wrap;gap:0 1em;font-size:smaller"
    return tag("span", *entries, class_="legend", style=style)


def swatch(position: int) -> Html:
    """A dot in the colour of a position of the legend."""
    dot = tag("circle", cx=5, cy=5, r=4, fill=colour(position))
    return tag(
        "svg",
        dot,
        class_="swatch",
        width=10,
        height=10,
        style="display:inline;margin-right:.35em",
        aria_hidden="true",
    )


def picture(width: float, height: float, title: str, content: Sequence[object], role: str = "img") -> Html:
    """An SVG element of a maximum size, which shrinks with the page.

    Screen readers say the title of an "img" and nothing of its content; of a "group", they read all texts.
    """
    attributes = {
        "viewBox": f"0 0 {width:g} {height:g}",
        "style": f"width:100%;max-width:{width * 1.2:g}px",
        "font_size": 11,
    }
    return tag("svg", *content, **attributes, role=role, aria_label=title, font_family="inherit")


def ticks(values: Sequence[float], about: int, whole: bool = False) -> list[float]:
    """Round numbers at equal distances that enclose all values.

    Args:
        values: At least one finite number.
        about: Approximate number of intervals.
        whole: Whether the ticks must be whole numbers.
    """
    low, high = min(values), max(values)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    if high - low <= abs(high) * 1e-12:
        low -= 1 if whole else abs(low) / 2 or 1
        high += 1 if whole else abs(high) / 2 or 1
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, 1) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{multiple * step:.12g}") for multiple in range(first, last + 1)]


class _Frame:
    """Translates numbers to coordinates of the picture."""

    def __init__(self, left: float, right: float, bottom: float, top: float) -> None:
        self.left, self.bottom = left, bottom
        self.across = (_WIDTH - _LEFT - _RIGHT) / (right - left)
        self.up = (_HEIGHT - _TOP - _BOTTOM) / (top - bottom)

    def x(self, number: float) -> float:
        return _LEFT + (number - self.left) * self.across

    def y(self, number: float) -> float:
        return _HEIGHT - _BOTTOM - (number - self.bottom) * self.up


def _axes(
    frame: _Frame,
    xs: Sequence[float],
    ys: Sequence[float],
    across: str,
) -> list[Html]:
    faint = {"stroke": "currentColor", "stroke_opacity": "0.15"}
    centred = {"text_anchor": "middle", "fill": "currentColor"}
    shapes = []
    for number in ys:
        y = frame.y(number)
        shapes.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, **faint))
        shapes.append(
            tag("text", brief(number), x=_LEFT - 6, y=y + 4, text_anchor="end", fill="currentColor")
        )
    foot = _HEIGHT - _BOTTOM
    for number in xs:
        x = frame.x(number)
        shapes.append(tag("line", x1=x, x2=x, y1=foot, y2=foot + 4, **faint))
        label = brief(number)
        fits = x + len(label) * _LETTER / 2 <= _WIDTH
        place = {"x": x, "text_anchor": "middle"} if fits else {"x": _WIDTH, "text_anchor": "end"}
        shapes.append(tag("text", label, y=foot + 16, fill="currentColor", **place))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    shapes.append(tag("text", across, x=middle, y=_HEIGHT - 4, **centred, fill_opacity="0.7"))
    return shapes


def _mark(number: float, text: str, frame: _Frame) -> Html:
    """A dashed line from the top to the axis, with a word beside it on the side that has more room."""
    x = frame.x(number)
    is_left = x < _WIDTH / 2
    line = tag(
        "line",
        x1=x,
        x2=x,
        y1=_TOP,
        y2=_HEIGHT - _BOTTOM,
        stroke="currentColor",
        stroke_opacity="0.5",
        stroke_dasharray="4 3",
    )
    place = {"x": x + (4 if is_left else -4), "y": _TOP - 7, "text_anchor": "start" if is_left else "end"}
    return joined([line, tag("text", text, **place, fill="currentColor", fill_opacity="0.8")])


def _line(line: Points, stroke: str, frame: _Frame, name: str, across: str) -> Html:
    corners = " ".join(f"{frame.x(x):.2f},{frame.y(y):.2f}" for x, y in line)
    path = tag(
        "polyline", points=corners, fill="none", stroke=stroke, stroke_width=2, stroke_linejoin="round"
    )
    # Many dots would hide the line: they become invisible, and larger so that one can still point at them.
    look = (
        {"r": 3, "fill": stroke} if len(line) <= _MOST_DOTS else {"r": 5, "fill": stroke, "fill_opacity": 0}
    )
    dots = []
    step = -(-len(line) // _MOST_HINTS) or 1
    for x, y in line[(len(line) - 1) % step :: step] if line else ():
        hint = tag("title", f"{name}, {across} {brief(x)}: {y:.6g}")
        dots.append(tag("circle", hint, cx=frame.x(x), cy=frame.y(y), **look))
    return joined([path, *dots])
