"""The generated catalogue: the same bytes, unique titles, readers with tastes."""

import csv
from collections import Counter

from widenet.data.invented_books import write_catalogue_csv


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    made = {
        name: write_catalogue_csv(tmp_path / name, 50, 40, seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    }
    content = {name: [path.read_bytes() for path in paths] for name, paths in made.items()}
    assert content["a"] == content["b"]
    assert content["a"][0] != content["c"][0]
    assert content["a"][1] != content["c"][1]


def test_titles_are_unique_and_users_have_about_thirty_distinct_items(tmp_path):
    interactions, titles = write_catalogue_csv(tmp_path, 500, 3000)
    assert len({row["title"] for row in rows(titles)}) == 3000
    pairs = [(row["user"], row["item"]) for row in rows(interactions)]
    assert len(set(pairs)) == len(pairs)
    per_user = Counter(user for user, _ in pairs)
    assert len(per_user) == 500
    assert min(per_user.values()) >= 10
    assert 25 < len(pairs) / 500 < 35
