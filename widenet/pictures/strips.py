"""Shares that change from column to column, as strips of darker and lighter cells, as SVG."""

import math
from collections.abc import Mapping, Sequence

from widenet.pictures.curves import COLOURS, picture
from widenet.pictures.html import Html, tag

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 360, 52, 12, 8, 36
_ROW = 7
_LEVELS = 8
_LABELS = 6


def strips(
    title: str,
    columns: Sequence[int],
    shares: Sequence[Sequence[float]],
    edges: Mapping[float, str],
    hints: Sequence[str],
    across: str = "epoch",
) -> Html:
    """Draw a column of cells for each number of the x axis: the larger a cell's share, the darker it is.

    Pointing at a column shows its hint.

    Args:
        title: Caption of the figure.
        columns: The numbers of the x axis, ascending.
        shares: For each column the shares of its cells, from the top; equally many in all columns.
        edges: Labels of the y axis: 0 is the upper edge of the first row, 0.5 its middle.
        hints: A text for each column.
        across: Label of the x axis.
    """
    caption = tag("figcaption", tag("b", title))
    if not columns:
        return tag("figure", caption, tag("p", "no values"))
    width = (_WIDTH - _LEFT - _RIGHT) / len(columns)
    foot = _TOP + _ROW * len(shares[0])
    shapes = [
        tag("path", d=path, fill=COLOURS[0], fill_opacity=level / _LEVELS)
        for level, path in _paths(shares, width).items()
    ]
    frame = {"x": _LEFT, "y": _TOP, "width": width * len(columns), "height": foot - _TOP}
    shapes.append(tag("rect", **frame, fill="none", stroke="currentColor", stroke_opacity="0.25"))
    for row, label in edges.items():
        y = _TOP + _ROW * row + 4
        shapes.append(tag("text", label, x=_LEFT - 6, y=y, text_anchor="end", fill="currentColor"))
    centred = {"text_anchor": "middle", "fill": "currentColor"}
    step = -(-len(columns) // _LABELS)
    for place, (column, hint) in enumerate(zip(columns, hints, strict=True)):
        x = _LEFT + width * place
        area = {"x": x, "y": _TOP, "width": width, "height": foot - _TOP, "fill_opacity": 0}
        shapes.append(tag("rect", tag("title", hint), **area))
        if (len(columns) - 1 - place) % step == 0:
            shapes.append(tag("text", f"{column:,}", x=x + width / 2, y=foot + 15, **centred))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    shapes.append(tag("text", across, x=middle, y=foot + 31, **centred, fill_opacity="0.7"))
    return tag("figure", caption, picture(_WIDTH, foot + _BOTTOM, title, shapes))


def _paths(shares: Sequence[Sequence[float]], width: float) -> dict[int, str]:
    """Return the outlines of all cells of each level; neighbours in a row are one."""
    largest = max(share for column in shares for share in column) or 1.0
    paths: dict[int, str] = {}
    for row, of_row in enumerate(zip(*shares, strict=True)):
        # A square root keeps small shares visible.
        levels = [math.ceil(_LEVELS * math.sqrt(share / largest)) for share in of_row]
        start = 0
        for place in range(1, len(levels) + 1):
            if place < len(levels) and levels[place] == levels[start]:
                continue
            if levels[start]:
                x, y = _LEFT + width * start, _TOP + _ROW * row
                wide = f"{width * (place - start):.2f}"
                cell = f"M{x:.2f} {y}h{wide}v{_ROW}h-{wide}z"
                paths[levels[start]] = paths.get(levels[start], "") + cell
            start = place
    return dict(sorted(paths.items()))
