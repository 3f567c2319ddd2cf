"""The part of a store that an attempt of a group has for itself, whatever earlier attempts left in the
store and whoever comes first.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, HashStore, PrefixStore

from widenet.parallel.attempt import name_of_this_attempt

SIZE, LIMIT = 3, timedelta(seconds=20)


@pytest.fixture
def store():
    found = HashStore()
    found.set_timeout(LIMIT)
    return found


def attempt(store, order):
    """What each process of an attempt finds under one key that the first has set, and under one that it
    has set itself.
    """

    def process(rank):
        part = PrefixStore(name_of_this_attempt(store, rank, SIZE, LIMIT), store)
        assert not part.check([f"address {rank}"])
        part.set(f"address {rank}", str(rank))
        part.wait([f"address {other}" for other in range(SIZE)])
        return sorted(int(part.get(f"address {other}")) for other in range(SIZE))

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(process, order))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_every_attempt_has_a_part_for_itself(order, store):
    for _ in range(3):
        assert attempt(store, order) == [[0, 1, 2]] * SIZE


def test_a_process_that_was_killed_while_it_asked_is_not_waited_for(store):
    store.set("widenet/asks/1", "somebody who was killed")
    assert attempt(store, (0, 2, 1)) == [[0, 1, 2]] * SIZE


def test_the_first_process_waits_no_longer_than_it_was_told(store):
    store.set("widenet/asks/1", "somebody of an earlier attempt")
    with pytest.raises(DistStoreError, match="process 1 did not come within 0 seconds"):
        name_of_this_attempt(store, 0, 2, timedelta(0))
