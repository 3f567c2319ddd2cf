"""What comes right after a sequence's newest item, by hand and by brute force."""

from collections import Counter
from itertools import pairwise

import numpy as np

import widenet
from widenet.baselines import measure
from widenet.baselines.methods import successors
from widenet.sparse import SparseBatch

TRAINED = [[0, 1, 2], [0, 1], [], [3], [0, 2, 1, 2], [4, 0, 1]]


def test_lists_worked_out_by_hand():
    # After 0 come 1 (3 times) and 2; after 1 comes 2. Counts: 0 and 1 4 times, 2 3 times, 3 and 4 once.
    lists = successors(SparseBatch.from_lists(TRAINED), 5)
    seen = SparseBatch.from_lists([[0], [4, 1], [1, 0], [3], [], [0, 1, 2, 3, 4]])
    assert lists(seen, seen, 3).tolist() == [
        [1, 2, 3],
        [2, 0, 3],
        [2, 3, 4],
        [0, 1, 2],
        [0, 1, 2],
        [-1, -1, -1],
    ]
    nothing = SparseBatch.from_lists([[]] * 6)
    assert lists(seen, nothing, 2).tolist() == [[1, 2], [2, 0], [1, 2], [0, 1], [0, 1], [0, 1]]


def test_lists_by_brute_force():
    random = np.random.default_rng(4)
    trained = [random.integers(30, size=random.integers(0, 12)).tolist() for _ in range(200)]
    seen = [random.integers(30, size=random.integers(0, 9)).tolist() for _ in range(60)]
    counts = Counter(item for row in trained for item in row)
    follows = Counter(pair for row in trained for pair in pairwise(row))
    expected = []
    for row in seen:
        newest = row[-1] if row else None
        best = sorted(
            set(range(30)) - set(row),
            key=lambda item, newest=newest: (
                -follows[newest, item],
                -counts[item] * (not follows[newest, item]),
                item,
            ),
        )
        expected.append(best[:10])
    batch = SparseBatch.from_lists(seen)
    assert successors(SparseBatch.from_lists(trained), 30)(batch, batch, 10).tolist() == expected


def test_they_are_measured_for_a_sequence_and_read_the_newest_item_before_the_part(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "find_spec", lambda _: None)
    rows = [[0, 1], [0, 1], [2], [5], [5], [5]]
    validation, heldout = [[3], [4], [0], [], [], []], [[4], [3], [1], [], [], []]
    along, alike = (
        widenet.dataset_from_lists(
            tmp_path / str(is_sequence),
            rows,
            validation=validation,
            heldout=heldout,
            width=6,
            sequence=is_sequence,
        )
        for is_sequence in (True, False)
    )
    assert "successors" not in measure.measured(alike, "items", "heldout", [1])
    found = measure.measured(along, "items", "heldout", [1])
    assert list(found) == ["popularity", "successors", "item-kNN", "SLIM", "EASE"]
    # After 3 and 4 nothing has come, and 5 is most popular. After 0, of the validation part, comes 1.
    assert found["successors"]["recall@1"] == 1 / 3
    assert found["popularity"]["recall@1"] == 0
