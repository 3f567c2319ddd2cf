"""HTML from values: whatever is not HTML already is text, and escaped."""

from collections.abc import Sequence
from html import escape

_WITHOUT_END = {"br", "meta"}


class Html(str):
    """Text that is HTML already; every other text is escaped where it meets one of these."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; children that are not Html are escaped.

    attributes: class_ stands for class, stroke_width for stroke-width; None and False leave one out, True is
    one without a value.
    """
    words = [
        name,
        *(
            _attribute(key, value)
            for key, value in attributes.items()
            if value is not None and value is not False
        ),
    ]
    start = Html(f"<{' '.join(words)}>")
    return start if name in _WITHOUT_END else Html(f"{start}{joined(children)}</{name}>")


def joined(children: Sequence[object]) -> Html:
    """Some pieces after each other; those that are not Html are escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(_text(child)) for child in children))


def table(
    header: Sequence[object],
    rows: Sequence[Sequence[object]],
    class_: str | None = None,
    numbers: bool = False,
) -> Html:
    """A table; columns of numbers to the right. A cell is shown as it is: numbers are text by then.

    numbers: every column but the first counts as one of numbers, whatever words are among them.
    """
    right = (
        [column > 0 for column in range(len(header))]
        if numbers
        else [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    )
    styles = [
        "text-align:right;font-variant-numeric:tabular-nums" if each else "text-align:left" for each in right
    ]
    head = [tag("th", cell, style=style) for cell, style in zip(header, styles, strict=True)]
    body = [
        tag("tr", *(tag("td", cell, style=style) for cell, style in zip(row, styles, strict=True)))
        for row in rows
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="wide", style="overflow-x:auto")


def brief(value: object) -> str:
    """A number as people read it: whole ones with commas, others with four digits; any other value as
    text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _text(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) >= 1000):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def _is_number(cell: object) -> bool:
    text = str(cell).strip("%s ").replace(",", "")
    try:
        float(text or "0")
    except ValueError:
        return False
    return not isinstance(cell, Html)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return name if value is True else f'{name}="{escape(_text(value))}"'


def _text(value: object) -> str:
    """A value as text; fractions with two digits, as coordinates need."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
