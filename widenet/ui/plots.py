"""Curves for a browser: their numbers, which `plots.js` draws with uPlot and lists as a table."""

import json
import math
from collections.abc import Mapping

from widenet.pictures.curves import Points, colour
from widenet.pictures.html import Html, tag

_DIGITS = 6


def plot(
    title: str,
    lines: Mapping[str, Points],
    across: str = "epoch",
    mark: tuple[float, str] | None = None,
    *,
    is_logarithmic: bool = False,
) -> Html:
    """Return a figure of one or more lines over a common axis.

    Points that are not finite are left out; if none is left, the figure says "no values".

    Args:
        title: Caption of the figure.
        lines: The points (x, y) of each line, by its name.
        across: Label of the x axis.
        mark: A number of the x axis that a dashed line marks, and what it says.
        is_logarithmic: Whether both axes are logarithmic.
    """
    by_x = [{x: y for x, y in line if math.isfinite(x) and math.isfinite(y)} for line in lines.values()]
    xs = sorted({x for line in by_x for x in line})
    caption = tag("figcaption", tag("b", title))
    if not xs:
        return tag("figure", caption, tag("p", "no values"))
    numbers = {
        "across": across,
        "names": list(lines),
        "colours": [colour(position) for position in range(len(lines))],
        "xs": xs,
        "ys": [[_short(line.get(x)) for x in xs] for line in by_x],
        "mark": mark,
        "logarithmic": is_logarithmic,
    }
    return tag("figure", caption, class_="plot", data_title=title, data_numbers=_as_text(numbers))


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.{_DIGITS}g}")


def _as_text(numbers: Mapping[str, object]) -> str:
    return json.dumps(numbers, separators=(",", ":"), allow_nan=False)
