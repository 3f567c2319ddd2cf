"""Bars side by side for groups of things, as SVG without a script."""

from collections.abc import Mapping, Sequence

from widenet.pictures.curves import colour, legend, picture
from widenet.pictures.html import Html, tag

_WIDTH, _ROW, _LABEL, _NUMBER = 480, 17, 130, 48
_GAP = 12


def bars(title: str, groups: Sequence[str], shares: Mapping[str, Sequence[float]]) -> Html:
    """A figure of shares in [0, 1], written as percentages: one bar a group and name, lying.

    groups: what stands beside the bars. shares: by name, one number a group.
    """
    most = max((share for row in shares.values() for share in row), default=0) or 1
    scale = (_WIDTH - _LABEL - _NUMBER) / most
    height = _ROW * len(shares) + _GAP
    drawn = []
    for place, group in enumerate(groups):
        top = place * height
        drawn.append(
            tag("text", group, x=_LABEL - 8, y=top + height / 2, text_anchor="end", fill="currentColor")
        )
        for row, (name, values) in enumerate(shares.items()):
            y, width = top + row * _ROW, max(values[place] * scale, 1.0)
            said = tag("title", f"{group}: {name} {values[place]:.2%}")
            drawn.append(
                tag("rect", said, x=_LABEL, y=y, width=width, height=_ROW - 3, rx=2, fill=colour(row))
            )
            drawn.append(
                tag(
                    "text",
                    f"{values[place]:.1%}",
                    x=_LABEL + width + 5,
                    y=y + 11,
                    fill="currentColor",
                    fill_opacity="0.8",
                )
            )
    caption = tag("figcaption", tag("b", title), legend(list(shares)))
    return tag("figure", caption, picture(_WIDTH, height * len(groups), title, drawn))
