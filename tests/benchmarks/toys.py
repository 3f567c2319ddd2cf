"""Histories of a few users, and the cells of tables that benchmarks print."""

ITEMS = 40
HISTORIES = [
    list(dict.fromkeys((user * 7 + step * (2 + user % 3)) % ITEMS for step in range(5 + user % 7)))
    for user in range(50)
]
"""Items of each user, in order of time."""


def cells_of(text):
    """Return the cells of each row of a table, without its head."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]
