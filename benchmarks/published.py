"""Compares printed tables with those of benchmarks/results, row by row.

The folder has a table for each processor that was measured. It is found by its title, its columns and the
line "Processor: ..." below it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
_HEADING, _PROCESSOR = re.compile(r"^#{2,4} (.+)$"), re.compile(r"^Processor: (.+), \d+ threads\.$")
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?")


@dataclass
class Rows:
    """A table as text: its title, columns, cells by the first of each row, and processor ("" if unknown)."""

    title: str
    columns: list[str]
    cells: dict[str, list[str]] = field(default_factory=dict)
    processor: str = ""


def tables_of(page: str) -> list[Rows]:
    """Return the tables of a text in Markdown."""
    found: list[Rows] = []
    title, inside = "", False
    for line in page.splitlines():
        if heading := _HEADING.match(line):
            title = heading[1]
        elif line.startswith("|"):
            first, *rest = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not inside:
                found.append(Rows(title, [first, *rest]))
            elif set(first) - set("-|"):
                found[-1].cells[first] = rest
        elif found and found[-1].title == title and (named := _PROCESSOR.match(line)):
            found[-1].processor = named[1]
        inside = line.startswith("|")
    return found


def compared(printed: Sequence[Rows], page: str) -> Iterator[str]:
    """Yield a line for each row that is new or changed, or that this run did not print."""
    known = tables_of(page)
    for table in printed:
        alike = [one for one in known if (one.title, one.columns) == (table.title, table.columns)]
        here = [one for one in alike if one.processor in ("", table.processor)]
        if not here:
            others = ", ".join(one.processor for one in alike)
            yield f"{table.title}: new" + (f" for {table.processor}; known are {others}" if others else "")
            continue
        before = here[-1].cells
        for name, cells in table.cells.items():
            yield f"{table.title}: {name}: {_change(table.columns[1:], cells, before.get(name))}"
        for name in [name for name in before if name not in table.cells]:
            yield f"{table.title}: {name}: not printed by this run"


def _change(columns: Sequence[str], cells: Sequence[str], before: Sequence[str] | None) -> str:
    """Return what changed in a row: of each cell that differs the new and the old text, and the share."""
    if before is None:
        return "new"
    changes = [
        f"{column} {cell}, before {old}{_share(cell, old)}"
        for column, cell, old in zip(columns, cells, before, strict=True)
        if cell != old
    ]
    return "; ".join(changes) or "unchanged"


def _share(cell: str, old: str) -> str:
    """Return by which share the first number changed, such as " (+12 %)"; empty without two numbers."""
    numbers = [_NUMBER.match(text) for text in (cell, old)]
    new, past = (float(number[0].replace(",", "")) if number else 0.0 for number in numbers)
    return f" ({new / past - 1:+.0%})".replace("%", " %") if new and past else ""
