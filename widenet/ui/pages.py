"""What pages have: their head, the ways between them, and HTML that the policy allows."""

import re
from collections.abc import Sequence
from urllib.parse import urlencode

from widenet.pictures.html import Html, joined, tag

_STYLE = re.compile(r' style="[^"]*"')
_PICTURE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)" style="[^"]*"')
_NUMBERS = re.compile(r'<(t[hd]) style="text-align:right[^"]*"')


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
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} \u00b7 widenet"),
        tag("link", rel="icon", href=f"{up}page/icon.svg"),
        *(tag("link", rel="stylesheet", href=f"{up}page/{name}") for name in ("page.css", "ui.css")),
        *(tag("script", src=f"page/{name}", type="module") for name in modules),
    )
    way = tag("a", "Runs", href=f"{up}./", aria_current="page" if here == "Runs" else None)
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("nav", tag("b", "widenet"), way, aria_label="Pages"),
        tag("header", tag("h1", title), tag("div", below, class_="below")),
        tag("p", id="lost", class_="error", role="alert", hidden=True),
        tag("main", *content, id="main", class_="parts", tabindex="-1"),
        data_version=version,
    )
    return joined([Html("<!doctype html>\n"), tag("html", head, body, lang="en"), Html("\n")])


def live(name: str, tag_name: str, *content: object, **attributes: object) -> Html:
    """An element whose content is replaced when the page is read anew."""
    return tag(tag_name, *content, data_live=name, **attributes)
