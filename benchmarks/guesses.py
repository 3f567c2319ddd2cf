"""Counts how many pieces of published files ingest takes for lists of items, and how many it refuses."""

from pathlib import Path

from benchmarks.places import DATA
from widenet.data.formats.guesses import begins_with_users

LINES = 100
"""Number of lines that the guess reads."""
FILES = {
    "users with their items": ("gowalla/train.txt", "gowalla/test.txt"),
    "sessions": ("diginetica/train_sessions.plain.txt",),
}


def run() -> None:
    """Print a row for each file: its pieces, and how many of them are clearly users with their items."""
    print(
        f"| file | holds | runs of {LINES} lines | taken as users with their items | refused"
        " |\n|---|---|---|---|---|"
    )
    for kind, names in FILES.items():
        for name in names:
            taken = [begins_with_users(lines) for lines in _runs(DATA / name)]
            print(
                f"| {name} | {kind} | {len(taken):,} | {sum(taken):,} | {len(taken) - sum(taken):,} |",
                flush=True,
            )


def _runs(path: Path) -> list[list[str]]:
    """Yield the lines of a file in blocks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [lines[start : start + LINES] for start in range(0, len(lines), LINES)]
