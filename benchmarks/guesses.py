"""Guesses about lists: how many runs of lines of published files are taken as users with their items, and
how many are refused.
"""

from pathlib import Path

from benchmarks.places import DATA
from widenet.data.formats.guesses import begins_with_users

LINES = 100
"""What the guess sees of a file."""
FILES = {
    "users with their items": ("gowalla/train.txt", "gowalla/test.txt"),
    "sessions": ("diginetica/train_sessions.plain.txt",),
}


def run() -> None:
    """Print a row a file: how many of its runs of lines are there, and how many are surely users with
    their items.
    """
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
    """The lines of a file, so many at a time."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [lines[start : start + LINES] for start in range(0, len(lines), LINES)]
