"""Counts the statements of each room of the package, and keeps the sizes in docs/architecture.md current."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"

_ROW = re.compile(r"^\| `(?P<room>[^`]+)` \| (?P<size>[\d,]+) \|", re.MULTILINE)
_SHARE, _LEAST = 0.15, 25
"""How far a size on the page may be from the code: a share of it, or so many statements."""


@cache
def statements_by_room() -> Counter[str]:
    """Return the number of Python statements, without docstrings, of each room: "plan/", "sparse.py"."""
    counts: Counter[str] = Counter()
    for path in (ROOT / "widenet").rglob("*.py"):
        parts = path.relative_to(ROOT / "widenet").parts
        room = parts[0] if len(parts) == 1 else f"{parts[0]}/"
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        counts[room] += sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))
    return counts


def stale_page() -> str | None:
    """Return the corrected page if sizes in its table of rooms are far from the code, else None."""
    page, counts = PAGE.read_text(encoding="utf-8"), statements_by_room()

    def corrected(row: re.Match[str]) -> str:
        shown, count = int(row["size"].replace(",", "")), counts[row["room"]]
        if shown and abs(shown - count) <= max(_SHARE * count, _LEAST):
            return row[0]
        step = 10 if count < 1000 else 100
        return f"| `{row['room']}` | {step * round(count / step):,} |"

    new = _ROW.sub(corrected, page)
    return None if new == page else new


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, of a module, class, function or name."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


if __name__ == "__main__":
    corrected_page = stale_page()
    if corrected_page is not None:
        PAGE.write_text(corrected_page, encoding="utf-8")
        print(f"wrote {PAGE}")
