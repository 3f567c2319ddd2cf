"""Boxes and arrows from top to bottom, as SVG."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from widenet.pictures.curves import picture
from widenet.pictures.html import Html, tag

_BOX, _LINE, _ROWS, _COLUMNS, _EDGE, _ASIDE = 236, 17, 30, 24, 8, 48
_MOST_LETTERS = 36


class _Place(NamedTuple):
    """The upper left corner of a box, and its height."""

    x: float
    y: float
    height: float


def graph(
    title: str,
    boxes: Mapping[str, tuple[str, Sequence[str]]],
    arrows: Sequence[tuple[str, str]],
    shared: Sequence[tuple[str, str]] = (),
) -> Html:
    """Draw a directed graph as boxes, each below all boxes that lead to it.

    Args:
        title: What the picture shows, for screen readers.
        boxes: For each name, its colour and the lines of text below the name, in topological order.
        arrows: Pairs of names: from, to.
        shared: Pairs of names that a dashed line joins: they share their weights.
    """
    texts = {
        name: [piece for line in lines for piece in _wrapped(line)] for name, (_, lines) in boxes.items()
    }
    depth: dict[str, int] = {}
    for name in boxes:
        depth[name] = max((depth[start] + 1 for start, end in arrows if end == name), default=0)
    num_floors = max(depth.values(), default=-1) + 1
    floors = [[name for name in boxes if depth[name] == floor] for floor in range(num_floors)]
    heights = [max(_height(texts[name]) for name in floor) for floor in floors]
    widest = max((len(floor) for floor in floors), default=0)
    aside = float(_ASIDE) if any(depth[end] - depth[start] > 1 for start, end in arrows) else 0.0
    before = float(_ASIDE) if shared else 0.0
    width = widest * (_BOX + _COLUMNS) - _COLUMNS + 2 * _EDGE + before + aside
    places: dict[str, _Place] = {}
    top = float(_EDGE)
    for floor, height in zip(floors, heights, strict=True):
        left = before + (width - before - aside - len(floor) * (_BOX + _COLUMNS) + _COLUMNS) / 2
        for column, name in enumerate(floor):
            places[name] = _Place(left + column * (_BOX + _COLUMNS), top, height)
        top += height + _ROWS
    shapes = [_arrow(places[start], places[end], depth[end] - depth[start]) for start, end in arrows]
    shapes += [_joint(places[start], places[end], f"{start} and {end}") for start, end in shared]
    for name, (stroke, _) in boxes.items():
        shapes += _box(name, stroke, texts[name], places[name])
    return picture(width, top - _ROWS + _EDGE, title, shapes, role="group")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _MOST_LETTERS, break_on_hyphens=False) or [line]


def _height(lines: Sequence[str]) -> float:
    return _LINE * (len(lines) + 1) + 14


def _box(name: str, stroke: str, lines: Sequence[str], place: _Place) -> Iterator[Html]:
    x, y, height = place
    look = {"rx": 8, "fill": stroke, "fill_opacity": "0.12", "stroke": stroke, "stroke_width": "1.5"}
    yield tag("rect", x=x, y=y, width=_BOX, height=height, **look)
    yield _label(name, x + 12, y + 20, font_weight="bold", font_size=13)
    for row, line in enumerate(lines, start=1):
        yield _label(line, x + 12, y + 20 + row * _LINE, fill_opacity="0.85")


def _joint(start: _Place, end: _Place, names: str) -> Html:
    """A dashed line from box to box, around those between on their left."""
    y1, y2 = start.y + start.height / 2, end.y + end.height / 2
    far = min(start.x, end.x) - 0.75 * _ASIDE
    path = f"M{start.x:g},{y1:g} C{far:g},{y1:g} {far:g},{y2:g} {end.x:g},{y2:g}"
    look = {"fill": "none", "stroke": "currentColor", "stroke_opacity": "0.6", "stroke_width": "1.5"}
    said = f"{names} share their weights"
    look |= {"role": "img", "aria_label": said, "class_": "shared"}
    return tag("path", tag("title", said), d=path, stroke_dasharray="5 4", **look)


def _label(text: str, x: float, y: float, **look: object) -> Html:
    """Text cut to the width of a box; pointing at it shows all of it."""
    short = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}\u2026"
    hint = [tag("title", text)] if short != text else []
    return tag("text", short, *hint, x=x, y=y, fill="currentColor", **look)


def _arrow(start: _Place, end: _Place, floors: int) -> Html:
    """An arrow straight down to the next floor, or around the floors between on their right."""
    if floors == 1:
        x1, y1 = start.x + _BOX / 2, start.y + start.height
        x2, y2 = end.x + _BOX / 2, end.y
        middle = (y1 + y2) / 2
        path = f"M{x1:g},{y1:g} C{x1:g},{middle:g} {x2:g},{middle:g} {x2:g},{y2:g} m-4,-6 l4,6 l4,-6"
    else:
        x1, y1 = start.x + _BOX, start.y + start.height / 2
        x2, y2 = end.x + _BOX, end.y + end.height / 2
        far = max(x1, x2) + 52
        path = f"M{x1:g},{y1:g} C{far:g},{y1:g} {far:g},{y2:g} {x2:g},{y2:g} m6,-4 l-6,4 l6,4"
    return tag("path", d=path, fill="none", stroke="currentColor", stroke_opacity="0.6", stroke_width="1.5")
