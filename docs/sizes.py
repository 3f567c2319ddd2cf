"""Prints the size of every room of the package beside its budget: `make sizes`. Nothing fails by it."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent

BUDGETS = {
    "dsstne": (("dsstne",), 2_000),
    "spark": (("spark",), 500),
    "frameworks, interop": (("frameworks", "interop"), 1_700),
    "cli": (("cli", "arguments.py"), 1_200),
    "ui": (("ui",), 600),
    "serve": (("serve",), 1_050),
    "tuning": (("tuning",), 450),
    "report, pictures, demo": (("report", "pictures", "demo"), 700),
    "tracking": (("tracking",), 100),
    "runs": (("runs",), 1_500),
    "baselines, metrics": (("baselines", "metrics"), 650),
    "predict, knn": (("predict", "knn"), 1_150),
    "training": (("training",), 1_500),
    "parallel": (("parallel",), 400),
    "model": (("model",), 2_000),
    "kernels": (("kernels", "devices.py", "randomness.py", "sparse.py"), 1_300),
    "plan": (("plan",), 900),
    "data": (("data",), 3_000),
    "stores": (("stores",), 450),
    "spec": (("spec",), 950),
    "the root": ((), 250),
}
"""What lies in each row of the table, and its budget in statements; the root has what no other row names."""


def statements(path: Path) -> int:
    """Return the number of Python statements of a file, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))


def sizes_by_row() -> Counter[str]:
    """Return the statements of each row of `BUDGETS`."""
    rows = {part: name for name, (parts, _) in BUDGETS.items() for part in parts}
    package = ROOT / "widenet"
    counts: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        counts[rows.get(path.relative_to(package).parts[0], "the root")] += statements(path)
    return counts


def main() -> None:
    """Print the table, and the sizes of what has a budget as a whole."""
    counts = sizes_by_row()
    print(f"{'statements':24} {'now':>7} {'budget':>7}")
    for name, (_, budget) in BUDGETS.items():
        print(f"{name:24} {counts[name]:7,} {budget:7,}")
    print(f"{'all':24} {counts.total():7,} {sum(budget for _, budget in BUDGETS.values()):7,}")
    package = ROOT / "widenet"
    by_person = [path for path in (ROOT / "docs").rglob("*.md") if not _is_generated(path)]
    tests = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    print(f"{'files':24} {len([*package.rglob('*.py')]):7,} {300:7,}")
    print(f"{'files at the root':24} {len([*package.glob('*.py')]):7,} {10:7,}")
    print(f"{'lines of tests':24} {sum(len(text.splitlines()) for text in tests):7,} {32_000:7,}")
    native = [
        path.read_text("utf-8") for path in (ROOT / "native").iterdir() if path.suffix in (".cpp", ".h")
    ]
    print(f"{'lines of C++':24} {sum(len(text.splitlines()) for text in native):7,} {1_800:7,}")
    words = sum(len(path.read_text("utf-8").split()) for path in by_person)
    print(f"{'words of documentation':24} {words:7,} {45_000:7,}")


def _is_generated(path: Path) -> bool:
    """Return whether docs/generate.py writes a page."""
    return "Written by docs/generate.py" in path.read_text("utf-8") and "templates" not in path.parts


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, of a module, class, function or name."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


if __name__ == "__main__":
    main()
