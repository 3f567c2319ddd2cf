"""Single queries of many threads: each gets what it would have got alone, in batches that fill up or wait
no longer.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from widenet.errors import DataError, FitError, OptionError
from widenet.knn.neighbours import BatchedNeighbours, Neighbours

RANDOM = np.random.default_rng(1)
VECTORS = RANDOM.standard_normal((50, 4)).astype(np.float32)
QUERIES = RANDOM.standard_normal((6, 4)).astype(np.float32)
FOREVER = 3600.0


class Counted(Neighbours):
    """Remembers how many queries each search was for."""

    def search(self, queries, k=10):
        self.sizes = [*getattr(self, "sizes", []), len(queries)]
        return super().search(queries, k)


@pytest.fixture
def collection():
    return Counted.of(VECTORS)


def assert_right(found):
    scores, positions = Neighbours.of(VECTORS).search(QUERIES, 3)
    for row, (own_scores, own_positions) in enumerate(found):
        assert own_scores.tolist() == scores[row].tolist()
        assert own_positions.tolist() == positions[row].tolist()


def test_a_full_batch_is_answered_at_once(collection):
    batched = BatchedNeighbours(collection, 3, size=3, timeout_seconds=FOREVER)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(batched.nearest, QUERIES))
    assert_right(found)
    assert collection.sizes == [3, 3]


def test_a_batch_that_does_not_fill_up_is_answered_after_a_while(collection):
    batched = BatchedNeighbours(collection, 3, size=100, timeout_seconds=0.05)
    with ThreadPoolExecutor(6) as pool:
        assert_right(pool.map(batched.nearest, QUERIES))
    assert sum(collection.sizes) == 6


def test_a_query_that_is_refused_or_fails_spoils_none_of_another_batch(collection, monkeypatch):
    batched = BatchedNeighbours(collection, 3, size=2, timeout_seconds=FOREVER)
    for query, error in (([1, 2], FitError), ([1, 2, 3, np.nan], DataError)):
        with pytest.raises(error):
            batched.nearest(query)
    with ThreadPoolExecutor(2) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(collection, "search", lambda *_: 1 / 0)
            for outcome in [pool.submit(batched.nearest, query) for query in QUERIES[:2]]:
                with pytest.raises(ZeroDivisionError):
                    outcome.result()
        assert_right(pool.map(batched.nearest, QUERIES))


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (1, -1.0), (1, float("nan"))])
def test_sizes_and_times_below_zero_are_refused(size, seconds, collection):
    with pytest.raises(OptionError):
        BatchedNeighbours(collection, 3, size, seconds)
