"""Parallel coordinates, as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from widenet.pictures.curves import COLOURS, picture
from widenet.pictures.html import Html, tag

_HEIGHT, _TOP, _BOTTOM, _APART, _EDGE = 260, 30, 14, 150, 70
_FAINT, _PLAIN = 0.12, 0.85
_MOST_LETTERS = 22


@dataclass(frozen=True)
class Line:
    """One line of the picture.

    Attributes:
        hint: Text that pointing at it shows.
        places: Its place on each axis, from 0 at the foot to 1; None leaves the axis out.
        strength: From 0, faint, to 1.
        is_marked: Whether it has the second colour, and lies over the others.
    """

    hint: str
    places: Sequence[float | None]
    strength: float
    is_marked: bool = False


def parallel(title: str, axes: Mapping[str, Mapping[float, str]], lines: Sequence[Line]) -> Html:
    """Draw lines across vertical axes; pointing at one shows its text.

    Args:
        title: Caption of the figure.
        axes: For each name of an axis, the labels beside it by their places from 0 to 1.
        lines: The lines.
    """
    xs = [_EDGE + number * _APART for number in range(len(axes))]
    shapes = []
    for line in sorted(lines, key=lambda line: (line.is_marked, line.strength)):
        corners = [f"{x:g},{_y(at):.2f}" for x, at in zip(xs, line.places, strict=True) if at is not None]
        look = {
            "stroke": COLOURS[int(line.is_marked)],
            "stroke_opacity": f"{_FAINT + (_PLAIN - _FAINT) * line.strength:.2f}",
            "stroke_width": 3 if line.is_marked else 1.5,
        }
        shapes.append(tag("polyline", tag("title", line.hint), points=" ".join(corners), fill="none", **look))
    for x, (name, labels) in zip(xs, axes.items(), strict=True):
        shapes.append(tag("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM, stroke="currentColor"))
        shapes.append(_text(_short(name), x, 14, "middle", name))
        shapes += [_text(_short(label), x + 5, _y(at) + 4, "start", label) for at, label in labels.items()]
    caption = tag("figcaption", tag("b", title))
    width = 2 * _EDGE + max(len(xs) - 1, 0) * _APART
    return tag("figure", caption, picture(width, _HEIGHT, title, shapes))


def _y(place: float) -> float:
    return _TOP + 8 + (1 - place) * (_HEIGHT - _TOP - _BOTTOM - 16)


def _text(text: str, x: float, y: float, anchor: str, whole: str) -> Html:
    return tag("text", text, tag("title", whole), x=x, y=y, text_anchor=anchor, fill="currentColor")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"\u2026{text[1 - _MOST_LETTERS :]}"
