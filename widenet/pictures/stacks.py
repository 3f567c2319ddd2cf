"""Horizontal bars of several parts, as SVG."""

from collections.abc import Callable, Mapping

from widenet.pictures.curves import colour, legend, picture
from widenet.pictures.html import Html, tag

_WIDTH, _ROW, _BAR, _LABEL, _NUMBER = 420, 24, 16, 72, 64


def stacks(title: str, rows: Mapping[str, Mapping[str, float]], said: Callable[[float], str]) -> Html:
    """Draw a bar for each row, made of parts; pointing at a part shows its number.

    Args:
        title: Caption of the figure.
        rows: The parts of each row by their names, by the row's name; parts that all rows lack are left out.
        said: Writes a number, and the sum at the end of a bar.
    """
    names = list(dict.fromkeys(name for parts in rows.values() for name, size in parts.items() if size > 0))
    most = max((sum(parts.values()) for parts in rows.values()), default=0) or 1
    scale = (_WIDTH - _LABEL - _NUMBER) / most
    shapes = []
    for place, (row, parts) in enumerate(rows.items()):
        x, y = float(_LABEL), place * _ROW + (_ROW - _BAR) / 2
        text = {"y": y + 12, "fill": "currentColor"}
        shapes.append(tag("text", row, x=_LABEL - 8, text_anchor="end", **text))
        for name in names:
            width = parts.get(name, 0) * scale
            hint = tag("title", f"{row}: {name} {said(parts.get(name, 0))}")
            shapes.append(
                tag("rect", hint, x=x, y=y, width=width, height=_BAR, fill=colour(names.index(name)))
            )
            x += width
        shapes.append(tag("text", said(sum(parts.values())), x=x + 6, **text))
    caption = tag("figcaption", tag("b", title), legend(names))
    return tag("figure", caption, picture(_WIDTH, _ROW * len(rows), title, shapes))
