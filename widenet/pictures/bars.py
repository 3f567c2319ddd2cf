"""Horizontal bar charts in groups, as SVG."""

from collections.abc import Mapping, Sequence

from widenet.pictures.curves import colour, legend, picture
from widenet.pictures.html import Html, tag

_WIDTH, _ROW, _LABEL, _NUMBER = 400, 17, 130, 48
_GAP = 12


def bars(title: str, groups: Sequence[str], shares: Mapping[str, Sequence[float]]) -> Html:
    """Draw shares in [0, 1] as percentages: one horizontal bar for each group and name.

    Args:
        title: Caption of the figure.
        groups: Labels beside the bars.
        shares: For each name, one share for each group.
    """
    largest = max((share for row in shares.values() for share in row), default=0) or 1
    scale = (_WIDTH - _LABEL - _NUMBER) / largest
    height = _ROW * len(shares) + _GAP
    shapes = []
    for position, group in enumerate(groups):
        top, middle = position * height, (position + 0.5) * height
        shapes.append(tag("text", group, x=_LABEL - 8, y=middle, text_anchor="end", fill="currentColor"))
        for row, (name, values) in enumerate(shares.items()):
            share, y = values[position], top + row * _ROW
            width, right = max(share * scale, 1.0), _LABEL + max(share * scale, 1.0) + 5
            hint = tag("title", f"{group}: {name} {share:.2%}")
            number = {"x": right, "y": y + 11, "fill": "currentColor", "fill_opacity": "0.8"}
            shapes += [
                tag("rect", hint, x=_LABEL, y=y, width=width, height=_ROW - 3, rx=2, fill=colour(row)),
                tag("text", f"{share:.1%}", **number),
            ]
    caption = tag("figcaption", tag("b", title), legend(list(shares)))
    return tag("figure", caption, picture(_WIDTH, height * len(groups), title, shapes))
