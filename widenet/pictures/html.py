"""HTML elements from Python values; text is escaped."""

from collections.abc import Sequence
from html import escape

_WITHOUT_END = {"br", "input", "link", "meta"}


class Html(str):
    """Text that is HTML already and must not be escaped."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An HTML element; children that are not `Html` are escaped.

    Args:
        name: The element, such as "td".
        children: Its content.
        attributes: `class_` gives class, `stroke_width` gives stroke-width. None and False leave an
            attribute out; True gives one without a value.
    """
    present = {key: value for key, value in attributes.items() if value is not None and value is not False}
    start = Html(f"<{' '.join([name, *(_attribute(key, value) for key, value in present.items())])}>")
    return start if name in _WITHOUT_END else Html(f"{start}{joined(children)}</{name}>")


def joined(children: Sequence[object]) -> Html:
    """Concatenate pieces; those that are not `Html` are escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(_text(child)) for child in children))


def table(
    header: Sequence[object],
    rows: Sequence[Sequence[object]],
    class_: str | None = None,
    numbers: bool = False,
) -> Html:
    """An HTML table whose columns of numbers are aligned to the right.

    Args:
        header: Names of the columns.
        rows: Cells, already formatted.
        class_: Class of the table element.
        numbers: Treat every column but the first as numbers, whatever text is in it.
    """
    styles = []
    for column in range(len(header)):
        has_numbers = bool(rows) and all(_is_number(row[column]) for row in rows)
        is_right = column > 0 if numbers else has_numbers
        styles.append("text-align:right;font-variant-numeric:tabular-nums" if is_right else "text-align:left")
    head = [tag("th", cell, style=style) for cell, style in zip(header, styles, strict=True)]
    body = [
        tag("tr", *(tag("td", cell, style=style) for cell, style in zip(row, styles, strict=True)))
        for row in rows
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_=class_)
    # Somebody without a mouse can only scroll what can have the focus.
    can_scroll = {"tabindex": 0, "role": "group", "aria_label": "Table"}
    return tag("div", whole, class_="wide", style="overflow-x:auto", **can_scroll)


def brief(value: object) -> str:
    """Format a number with commas or four digits, as people read it; any other value as text."""
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
    """A value as text; fractions have at most two decimals, enough for coordinates."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
