"""A store's part that belongs to one attempt of a group: torchrun lends every attempt the same store, with
what earlier ones left in it.
"""

import time
from datetime import timedelta
from uuid import uuid4

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]

_LOOK_SECONDS = 0.02


def name_of_this_attempt(store: Store, rank: int, size: int, timeout: timedelta) -> str:
    """A prefix for the keys of a store that every process of this attempt is given, and none of another
    attempt.

    Without it a process could meet the addresses of processes that have ended, and wait for them. The count
    of restarts in the environment is no name for an attempt: on several machines it differs. So each process
    asks under a name of its own, and the first answers all. Raises DistStoreError where a process does not
    come in time.
    """
    own = uuid4().hex
    if rank > 0:
        store.set(f"widenet/asks/{rank}", own)
        name = store.get(f"widenet/told/{own}").decode()
        store.set(f"widenet/heard/{own}/{name}", "")
        return name
    deadline, missing = time.monotonic() + timeout.total_seconds(), list(range(1, size))
    while missing := [other for other in missing if not _has_heard(store, other, own)]:
        if time.monotonic() > deadline:
            raise DistStoreError(
                f"process {missing[0]} did not come within {timeout.total_seconds():.0f} seconds"
            )
        time.sleep(_LOOK_SECONDS)
    return own


def _has_heard(store: Store, rank: int, name: str) -> bool:
    """Whether a process has heard the name of this attempt.

    Whoever asked last is told; one of an earlier attempt never hears.
    """
    if not store.check([f"widenet/asks/{rank}"]):
        return False
    asking = store.get(f"widenet/asks/{rank}").decode()
    store.set(f"widenet/told/{asking}", name)
    return store.check([f"widenet/heard/{asking}/{name}"])
