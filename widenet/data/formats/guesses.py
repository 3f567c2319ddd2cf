"""Guesses from the first rows of a file: columns of times, tables, users with items, or sessions."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

LISTS = "lists of numbers"
"""Pattern of a column of sessions."""

_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([T ].*)?|\d{1,2}/\d{1,2}/\d{2}("
    r" .*)?"
)
_DECIMAL = re.compile(r"[-+]?\d+\.\d*(e[-+]?\d+)?|[-+]?\d+e[-+]?\d+", re.IGNORECASE)
_DIGITS = re.compile("[0-9]+")
_NUMBERS = re.compile(r"\d+(\s+\d+)+\s*")

_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1990, 2040))
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_FEWEST_EXPECTED = 5
"""If fewer first words are expected among the items, their absence means nothing."""
_FEWEST_NUMBERED = 10
_LARGEST_STEP = 1.5
"""Largest mean distance between the numbers of users, for a file that leaves some users out."""


def time_like(cells: Sequence[str]) -> str | None:
    """Return what the cells of a column look like if they are times; None if they are not.

    The result is a description such as "seconds since 1970". Numbers are times if all of them lie between
    1990 and 2040 in one unit. Empty cells are ignored.
    """
    cells = [cell for cell in cells if cell.strip()]
    if not cells:
        return None
    if all(_DATE.fullmatch(cell.strip()) for cell in cells):
        return "dates"
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return None
    for unit, per_second in _UNITS.items():
        if all(_EARLIEST <= number / per_second < _LATEST for number in numbers):
            return f"{unit} since 1970"
    return "days" if all(_is_day(cell) for cell in cells) else None


def _is_day(cell: str) -> bool:
    """Whether a cell is a day such as 20240501."""
    try:
        return 1990 <= datetime.strptime(cell.strip(), "%Y%m%d").year < 2040 and len(cell.strip()) == 8
    except ValueError:
        return False


def holds_lists(cells: Sequence[str]) -> bool:
    """Whether cells hold several numbers each, as sessions do; some cells may hold one."""
    return any(map(_NUMBERS.fullmatch, cells)) and all(
        _NUMBERS.fullmatch(cell) or _DIGITS.fullmatch(cell.strip()) for cell in cells
    )


def table_like(lines: Sequence[str]) -> str | None:
    """Return why lines of words look like a table of interactions; None if they look like lists of items.

    A table has the same number of words in each line, three or more, and columns that are padded, decimal or
    times.
    """
    rows = [line.split() for line in lines if line.strip()]
    if len(rows) < 2 or len({len(row) for row in rows}) != 1 or len(rows[0]) < 3:
        return None
    if any(re.search(r"\S[ ]{2,}\S", line) for line in lines):
        return "several spaces pad its columns"
    columns = list(zip(*rows, strict=True))
    for place, column in enumerate(columns, start=1):
        if all(map(_DECIMAL.fullmatch, column)):
            return f"column {place} holds decimals"
    times = [(place, kind) for place, column in enumerate(columns, start=1) if (kind := time_like(column))]
    return f"column {times[0][0]} looks like {times[0][1]}" if len(times) == 1 else None


def begins_with_users(lines: Sequence[str]) -> bool:
    """Whether the first words of lines are surely users; otherwise a line may be a session of items alone.

    They are users in either of two cases:

    - They are written like no other word, such as u1, u2.
    - No id repeats among the items of a line, and the first words either are ascending whole numbers, as of
      numbered users, or are never items although items repeat on other lines.

    Dates are no users: lines of a log begin with them.
    """
    rows = [words for line in lines if (words := line.split())]
    first, lists = [row[0] for row in rows], [row[1:] for row in rows]
    if time_like(first) == "dates":
        return False
    shapes = {_shape(word) for word in first}
    if (
        len(shapes) == 1
        and "0" in min(shapes)
        and not shapes & {_shape(word) for items in lists for word in items}
    ):
        return True
    if any(len(set(items)) < len(items) for items in lists):
        return False
    return _are_numbered(first, rows) or _are_never_items(first, lists)


def _shape(word: str) -> str:
    """The notation of a word: its letters and signs, with 0 for every number."""
    return _DIGITS.sub("0", word)


def _are_numbered(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether first words number the users: they ascend, with few gaps or over many lines.

    Sessions whose items are numbered in order of appearance may begin with ascending numbers too. In these,
    the first number of each line exceeds all numbers of the line before.
    """
    if not all(map(_DIGITS.fullmatch, first)):
        return False
    numbers = [int(word) for word in first]
    if any(then < number for number, then in pairwise(numbers)):
        return False
    num_users = len(set(numbers))
    if num_users > 1 and numbers[-1] - numbers[0] <= _LARGEST_STEP * (num_users - 1):
        return True
    if num_users < _FEWEST_NUMBERED:
        return False
    largest = [max(int(word) if _DIGITS.fullmatch(word) else 0 for word in row) for row in rows]
    return not all(then > above for above, then in zip(largest, numbers[1:], strict=False))


def _are_never_items(first: Sequence[str], lists: Sequence[Sequence[str]]) -> bool:
    """Whether no first word is ever an item, although some would be if they were drawn from the same ids.

    How often items repeat tells how many to expect.
    """
    counts = Counter(word for items in lists for word in set(items))
    total = sum(counts.values())
    if not total or any(word in counts for word in first):
        return False
    again = sum(count for count in counts.values() if count > 1)
    return len(set(first)) * again / total >= _FEWEST_EXPECTED
