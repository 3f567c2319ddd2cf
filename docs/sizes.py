"""Counts the statements of each room of the package, and keeps the sizes in docs/architecture.md current."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent

_ROW = re.compile(r"^\| `(?P<room>[^`]+)` \| (?P<size>[\d,]+) \|", re.MULTILINE)
_SHARE, _LEAST = 0.15, 25
"""How far a size on the page may be from the code: a share of it, or so many statements."""


def statements_by_room() -> Counter[str]:
    """Return the number of Python statements, without docstrings, of each room: "plan/", "sparse.py"."""
    counts: Counter[str] = Counter()
    for path in (ROOT / "widenet").rglob("*.py"):
        parts = path.relative_to(ROOT / "widenet").parts
        room = parts[0] if len(parts) == 1 else f"{parts[0]}/"
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        counts[room] += sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))
    return counts


def with_sizes(page: str) -> str:
    """Return a page with the sizes in its table of rooms corrected where they are far from the code."""
    counts = statements_by_room()

    def corrected(row: re.Match[str]) -> str:
        shown, count = int(row["size"].replace(",", "")), counts[row["room"]]
        if shown and abs(shown - count) <= max(_SHARE * count, _LEAST):
            return row[0]
        step = 10 if count < 1000 else 100
        return f"| `{row['room']}` | {step * round(count / step):,} |"

    return _ROW.sub(corrected, page)


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, of a module, class, function or name."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


if __name__ == "__main__":
    architecture = ROOT / "docs" / "architecture.md"
    architecture.write_text(with_sizes(architecture.read_text(encoding="utf-8")), encoding="utf-8")
