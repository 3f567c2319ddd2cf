"""Where the processes that mpirun has started on one machine meet: at a free port, which the first one
tells through a file.
"""

import os
import tempfile
from datetime import timedelta
from pathlib import Path

from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

from widenet.parallel.announced import launcher_here

_HOST = "127.0.0.1"


def store_of_this_launch(rank: int, size: int, timeout: timedelta) -> TCPStore:
    """The store that the processes of one mpirun share, all of which run on this machine and must ask.

    mpirun lends them no address. At a port that is always the same, the processes of two trainings could meet
    each other. The file is gone when the last one has read it. Raises RuntimeError where the first process
    does not come in time.
    """
    file = FileStore(str(Path(tempfile.gettempdir()) / f"widenet-{os.getuid()}-{launcher_here()}"), size)
    file.set_timeout(timeout)
    if rank > 0:
        return TCPStore(_HOST, int(file.get("port")), timeout=timeout)
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False, timeout=timeout)
    file.set("port", str(store.port))
    return store
