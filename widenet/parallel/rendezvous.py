"""Rendezvous of a group's processes: their shared store and the network interface."""

import fcntl
import os
import socket
import struct
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from torch.distributed import DistStoreError, FileStore, Store, TCPStore  # type: ignore[attr-defined]

from widenet.parallel.launcher import launcher_identity

_POLL_SECONDS = 0.02
_HOST = "127.0.0.1"

_SIOCGIFADDR = 0x8915
"""Asks Linux for the IPv4 address of an interface; see netdevice(7)."""
_NAME_BYTES, _ADDRESS = 256, slice(20, 24)


def attempt_name(store: Store, rank: int, size: int, timeout: timedelta) -> str:
    """Agree on a key prefix that no other attempt of the group uses.

    torchrun gives every attempt the same store, which still holds the keys of earlier ones. Without a prefix,
    a process could read the addresses of processes that have ended, and wait for them. The restart count in
    the environment cannot name an attempt: on several machines it differs. So each process asks under a
    random name, and the first process answers all of them.

    Args:
        store: The store of all attempts.
        rank: Rank of this process.
        size: Number of processes.
        timeout: How long the first process waits for the others.

    Raises:
        DistStoreError: A process did not come in time.
    """
    own = uuid4().hex
    if rank > 0:
        store.set(f"widenet/asks/{rank}", own)
        name = store.get(f"widenet/told/{own}").decode()
        store.set(f"widenet/heard/{own}/{name}", "")
        return name
    deadline = time.monotonic() + timeout.total_seconds()
    missing = list(range(1, size))
    while missing := [other for other in missing if not _answer(store, other, own)]:
        if time.monotonic() > deadline:
            seconds = f"{timeout.total_seconds():.0f} seconds"
            raise DistStoreError(f"process {missing[0]} did not come within {seconds}")
        time.sleep(_POLL_SECONDS)
    return own


def _answer(store: Store, rank: int, name: str) -> bool:
    """Send the attempt's name to a process, and return whether it has confirmed.

    The key of a rank may be from a process of an earlier attempt, which never confirms. The latest one to ask
    gets the answer.
    """
    if not store.check([f"widenet/asks/{rank}"]):
        return False
    asking = store.get(f"widenet/asks/{rank}").decode()
    store.set(f"widenet/told/{asking}", name)
    return store.check([f"widenet/heard/{asking}/{name}"])


def store_of_this_launch(rank: int, size: int, timeout: timedelta) -> TCPStore:
    """Return the store of the processes that one mpirun has started on this machine; all must call this.

    mpirun gives them no address, and with a fixed port two trainings could join each other. So the first
    process takes a free port and writes it into a temporary file, which is removed after the last one has
    read it.

    Raises:
        RuntimeError: The first process did not come in time.
    """
    path = Path(tempfile.gettempdir()) / f"widenet-{os.getuid()}-{launcher_identity()}"
    file = FileStore(str(path), size)
    file.set_timeout(timeout)
    if rank > 0:
        return TCPStore(_HOST, int(file.get("port")), timeout=timeout)
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False, timeout=timeout)
    file.set("port", str(store.port))
    return store


def choose_interface(local_address: str) -> None:
    """Make gloo use the interface whose address this process used to reach the store of its group.

    By default, gloo takes the address of the machine's name. On many systems that is 127.0.1.1, which other
    machines cannot reach. Nothing changes if GLOO_SOCKET_IFNAME is set, or if the store is on this machine.
    """
    name = None if local_address.startswith("127.") else interface_of(local_address)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(address: str) -> str | None:
    """The name of the interface that has an IPv4 address; None if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(connection, _SIOCGIFADDR, struct.pack(f"{_NAME_BYTES}s", name.encode()))
            except OSError:  # the interface has no IPv4 address
                continue
            if socket.inet_ntoa(reply[_ADDRESS]) == address:
                return name
    return None
