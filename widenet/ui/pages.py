"""What pages have: their head, the ways between them, HTML that the policy allows, and numbers of curves."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from widenet.pictures.curves import Points, colour
from widenet.pictures.html import Html, joined, tag

_STYLE = re.compile(r' style="[^"]*"')
_PICTURE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)" style="[^"]*"')
_NUMBERS = re.compile(r'<(t[hd]) style="text-align:right[^"]*"')

_DIGITS = 6

PLOTS = ("uPlot.iife.min.js", "plots.js")
"""The scripts of pages with curves."""


def link(place: str, **query: object) -> str:
    """Return the address of a page, relative to any other."""
    given = {key: value for key, value in query.items() if value is not None}
    return f"{place}?{urlencode(given, doseq=True)}" if given else place


def strict(html: Html) -> Html:
    """Return HTML without style attributes, which the policy forbids; the stylesheet does their work.

    Quotes in texts are escaped, so what looks like an attribute is one.
    """
    html = Html(_NUMBERS.sub(r'<\1 class="number"', html))
    html = Html(_PICTURE.sub(r'viewBox="0 0 \1 \2" width="\1"', html))
    return Html(_STYLE.sub("", html))


def page(
    title: str,
    below: object,
    content: Sequence[object],
    *,
    here: str = "",
    version: int | None = None,
    scripts: Sequence[str] = (),
    up: str = "",
) -> Html:
    """Return a whole page.

    Args:
        title: Its heading.
        below: What stands below the heading.
        content: Its parts.
        here: The entry of the navigation that it belongs to.
        version: Version of the runs that it shows, from which on it follows them; None: it follows none.
        scripts: Its scripts beside those of every page.
        up: The way from the page to the folder of all pages.
    """
    modules = [*(("live.js",) if version is not None else ()), *scripts]
    styles = ["page.css", *(["uPlot.min.css"] if PLOTS[0] in modules else []), "ui.css"]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} \u00b7 widenet"),
        tag("link", rel="icon", href=f"{up}page/icon.svg"),
        *(tag("link", rel="stylesheet", href=f"{up}page/{name}") for name in styles),
        *(_script(name) for name in modules),
    )
    ways = [
        tag("a", name, href=up + place, aria_current="page" if here == name else None)
        for name, place in (("Runs", "./"), ("Data", "data"))
    ]
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("nav", tag("b", "widenet"), *ways, aria_label="Pages"),
        tag("header", tag("h1", title), tag("div", below, class_="below")),
        tag("p", id="lost", class_="error", role="alert", hidden=True),
        tag("main", *content, id="main", class_="parts", tabindex="-1"),
        data_version=version,
    )
    return joined([Html("<!doctype html>\n"), tag("html", head, body, lang="en"), Html("\n")])


def _script(name: str) -> Html:
    """A module, or a library of another form; both run in the order of the page, once it is read."""
    is_library = name.endswith(".iife.min.js")
    return tag("script", src=f"page/{name}", **({"defer": True} if is_library else {"type": "module"}))


def live(name: str, tag_name: str, *content: object, **attributes: object) -> Html:
    """An element whose content is replaced when the page is read anew."""
    return tag(tag_name, *content, data_live=name, **attributes)


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
