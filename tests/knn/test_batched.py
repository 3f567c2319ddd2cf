"""Single queries of many threads: each gets what it would have got alone, in batches that fill up or wait
no longer.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event

import numpy as np
import pytest

from widenet.errors import DataError, FitError, OptionError
from widenet.knn import neighbours as module
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


def test_queries_that_came_before_the_time_is_over_are_answered_together(collection, monkeypatch):
    """Time is over when all six have come."""
    waiting = Event()

    class Clock(Condition):
        def wait_for(self, is_closed, timeout):
            assert timeout == 0.25
            waiting.set()
            while not is_closed() and len(batched._open.queries) < 6:
                self.wait(0.01)

    monkeypatch.setattr(module, "Condition", Clock)
    batched = BatchedNeighbours(collection, 3, size=100, timeout_seconds=0.25)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(batched.nearest, QUERIES[0])
        assert waiting.wait(60)
        others = [pool.submit(batched.nearest, query) for query in QUERIES[1:]]
        assert_right([first.result(), *(other.result() for other in others)])
    assert collection.sizes == [6]
    assert not batched._open.queries


def test_a_query_that_is_refused_spoils_no_other(collection):
    batched = BatchedNeighbours(collection, 3, size=1, timeout_seconds=FOREVER)
    with pytest.raises(FitError):
        batched.nearest([1, 2])
    with pytest.raises(DataError):
        batched.nearest([1, 2, 3, np.nan])
    assert_right(map(batched.nearest, QUERIES))


def test_what_fails_in_the_search_fails_for_all_of_the_batch_and_for_no_other(collection, monkeypatch):
    batched = BatchedNeighbours(collection, 3, size=2, timeout_seconds=FOREVER)
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
