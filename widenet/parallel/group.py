"""The group of processes that train one network: joins it as the launcher describes, or uses a joined one."""

import atexit
import fcntl
import os
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch
from torch import distributed
from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)

from widenet.arguments import check_choice
from widenet.errors import DisagreementError, GroupError, OptionError, WidenetError
from widenet.parallel.exchange import Exchange
from widenet.parallel.launch import (
    JOIN_SECONDS,
    LAUNCHER,
    TIMEOUT_SECONDS,
    Heartbeat,
    launcher_identity,
    launcher_variable,
    line,
    started_by_mpi,
)
from widenet.plan.layout import Job
from widenet.plan.machine import available_memory, available_threads
from widenet.plan.memory import (
    PROGRAM_BYTES,
    check_fits,
    with_place,
    with_room,
    with_snapshots,
)

Facts = Mapping[str, str]
"""Plain text by name, in the order in which differences are looked for."""

_LONGEST = 60


def check_agreement(exchange: Exchange, facts: Facts, place: str | None = None) -> None:
    """Raise DisagreementError in every process if a fact differs between them; all must call this.

    Args:
        exchange: Exchange between the processes.
        facts: What must be equal.
        place: Where the training is; the error then names it before the fact.
    """
    everyone = exchange.collect((socket.gethostname(), dict(facts)), "agreement")
    for name in dict.fromkeys(name for _, own in everyone for name in own):
        holders: dict[str | None, list[str]] = {}
        for rank, (host, own) in enumerate(everyone):
            holders.setdefault(own.get(name), []).append(f"{rank} ({host})")
        if len(holders) > 1:
            values = "; ".join(
                f"{str(value)[:_LONGEST]} in process {', '.join(ranks)}" for value, ranks in holders.items()
            )
            where = name if place is None else f"{place}, {name}"
            raise DisagreementError(f"must be the same in all processes, but is {values}", place=where)


T = TypeVar("T")

COLLECTIVE_SECONDS = 3600
"""Seconds that a collective waits for processes whose heartbeats arrive, but which do not take part."""

_POLL_SECONDS = 0.02
_SIOCGIFADDR = 0x8915
"""Asks Linux for the IPv4 address of an interface; see netdevice(7)."""


def num_processes() -> int:
    """Processes in the group that this process belongs to; 1 without a launcher."""
    if distributed.is_initialized():
        return distributed.get_world_size()
    return _number("WORLD_SIZE", "1")


def _number(name: str, default: str | None = None) -> int:
    """Return a number that the launcher has told; raises GroupError if it has told none."""
    value = launcher_variable(name) or default
    if value is None or not value.isdecimal():
        raise GroupError("must be a whole number", place=f"environment variable {name}", value=value)
    return int(value)


def is_leader() -> bool:
    """Whether this process writes files and messages for its group."""
    if distributed.is_initialized():
        return distributed.get_rank() == 0
    return num_processes() == 1 or _number("RANK", "0") == 0


def device_for(name: str | None) -> torch.device:
    """Return the device of this process: the CPU, or a CUDA device of its own.

    Args:
        name: "cpu" or "cuda"; None uses CUDA if there is a device.

    Raises:
        OptionError: The name is unknown, or there is no CUDA device.
    """
    check_choice("device", name, ("cpu", "cuda"))
    has_cuda, rule = torch.cuda.is_available(), "must be a device that torch sees"
    OptionError.require(has_cuda or name != "cuda", rule, option="device", value=name)
    if name == "cpu" or not has_cuda:
        return torch.device("cpu")
    return torch.device("cuda", _number("LOCAL_RANK", "0") % torch.cuda.device_count())


def fitted(job: Job, device: torch.device, exchange: Exchange, chooses_place: bool = False) -> Job:
    """Return the job with the options that fit into memory: with or without snapshots and kept logits.

    Every process decides for all of them from what each has.

    Args:
        job: The job.
        device: This process's device.
        exchange: Exchange between the processes.
        chooses_place: Whether wide weights go elsewhere if some process has no room for them.

    Raises:
        CapacityError: Some process's device or machine has too little memory; all processes raise this.
    """
    available, unused = available_memory(), 0
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        unused = torch.cuda.mem_get_info(device)[0] + cached
    own = socket.gethostname(), sys.maxsize if available is None else available, unused
    everyone = exchange.collect(own, "memory")
    machines = Counter(host for host, _, _ in everyone)
    program = PROGRAM_BYTES[device.type]
    rooms = [
        (machines[host], free, program + (unused if device.type == "cuda" else free // machines[host]))
        for host, free, unused in everyone
    ]
    if chooses_place:
        jobs = [with_place(job, size) for _, _, size in rooms]
        job = next((each for each in jobs if each.weights_in != "device"), job)
    if not all(with_snapshots(with_room(job, size), num, free).has_snapshots for num, free, size in rooms):
        job = replace(job, has_snapshots=False)
    for num_local, free, size in rooms:
        check_fits(job, size, num_local, free)
    return with_room(job, rooms[exchange.rank][2])


def join(device: torch.device, timeout: float = TIMEOUT_SECONDS) -> None:
    """Join the group that the launcher describes; does nothing if this process has joined a group already.

    Every process of the group must call this. The process leaves the group when it ends. In a group that a
    script has joined itself there are no heartbeats.

    Args:
        device: This process's device.
        timeout: Seconds without a heartbeat after which the others report a process as lost, for as long as
            the group lasts.

    Raises:
        GroupError: The group cannot be joined.
        OptionError: `timeout` is below 1 second.
    """
    OptionError.require(timeout >= 1, "must be at least 1 second", option="timeout", value=timeout)
    if num_processes() == 1 or distributed.is_initialized():
        return
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        _join(device, timeout, rank, size)
    except (OSError, RuntimeError, ValueError) as error:
        raise GroupError(f"process {rank} of {size} cannot join its group: {error}") from error


def _join(device: torch.device, timeout: float, rank: int, size: int) -> None:
    """Connect to the launcher's store or to one that process 0 holds, start the heartbeat, form the group."""
    limit = timedelta(seconds=JOIN_SECONDS)
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosted = not is_agents and LAUNCHER not in os.environ
    host, port = launcher_variable("MASTER_ADDR"), _number("MASTER_PORT", "29500")
    store: Store
    if host is None and started_by_mpi():
        here = _number("LOCAL_WORLD_SIZE")
        if size != here:
            rule = f"must name the machine of the first process: {here} of {size} processes are on this one"
            raise GroupError(rule, place="environment variable MASTER_ADDR")
        store = store_of_this_launch(rank, size, limit)
        host, port = store.host, store.port
    else:
        host = host or "127.0.0.1"
        if not hosted:
            # This fails at once if the launcher is gone; TCPStore would fail only after its timeout.
            socket.create_connection((host, port), JOIN_SECONDS).close()
        store = TCPStore(host, port, is_master=hosted and rank == 0, timeout=limit, wait_for_workers=False)
    with socket.create_connection((host, port), JOIN_SECONDS) as connection:
        choose_interface(connection.getsockname()[0])
    beats: Store = TCPStore(host, port, timeout=limit, wait_for_workers=False)
    if is_agents:
        name = attempt_name(store, rank, size, limit)
        store, beats = PrefixStore(name, store), PrefixStore(name, beats)
    heartbeat = Heartbeat(beats, rank, size, f"{host}:{port}", timeout, hosted, lambda: _is_busy(device))
    heartbeat.start()
    line().heartbeat = heartbeat
    atexit.register(_leave, heartbeat)
    init = partial(
        distributed.init_process_group,
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    line().submit(init)()
    if device.type == "cpu":
        # Without a barrier, a process that ends now would cut connections that the others still set up.
        line().submit(distributed.barrier)()


def _leave(heartbeat: Heartbeat) -> None:
    """Leave the group; end this process at once if a lost process made its work fail.

    A blocked collective would keep the group from being destroyed, and could abort Python while it ends. A
    process that needed nothing more from the others keeps its exit status, even if the process that holds the
    store ends first.
    """
    with suppress(Exception):
        line().submit(bool)()  # what was submitted before has then been done, or has failed
    if line().has_failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(GroupError.status)
    heartbeat.stop()
    if distributed.is_initialized():
        distributed.destroy_process_group()


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
    for other in range(1, size):
        # A process of an earlier attempt, which never confirms, may have asked: the latest one is told.
        asking = ""
        while not store.check([f"widenet/heard/{asking}/{own}"]):
            if time.monotonic() > deadline:
                raise DistStoreError(f"process {other} did not come within {timeout}")
            if store.check([f"widenet/asks/{other}"]):
                asking = store.get(f"widenet/asks/{other}").decode()
                store.set(f"widenet/told/{asking}", own)
            time.sleep(_POLL_SECONDS)
    return own


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
        return TCPStore("127.0.0.1", int(file.get("port")), timeout=timeout)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
    file.set("port", str(store.port))
    return store


def choose_interface(address: str) -> None:
    """Make gloo use the interface whose address this process used to reach the store of its group.

    By default, gloo takes the address of the machine's name. On many systems that is 127.0.1.1, which other
    machines cannot reach. Nothing changes if GLOO_SOCKET_IFNAME is set, or if the store is on this machine.
    """
    if address.startswith("127."):
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # the interface has no IPv4 address
                reply = fcntl.ioctl(connection, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(reply[20:24]) == address:
                    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _is_busy(device: torch.device) -> bool:
    """Whether work is queued on a CUDA device's stream, such as a collective that waits for its partners."""
    return device.type == "cuda" and not torch.cuda.default_stream(device).query()


def exchange_for(num_shards: int, device: torch.device) -> Exchange:
    """Return the exchange of this process: between the processes of its group, or between its own shards.

    Args:
        num_shards: Shards of every wide layer.
        device: This process's device.
    """
    threads = available_threads() if device.type == "cpu" else 1
    return Exchange(num_shards, threads, device, distributed.is_initialized())


def by_leader(exchange: Exchange, work: Callable[[], object], where: str) -> None:
    """Run some work in the leader while the others wait; a WidenetError of it is raised in all processes."""
    by_some(exchange, exchange.leads, work, where)


def by_some(exchange: Exchange, does: bool, work: Callable[[], object], where: str) -> None:
    """As `by_leader`, in every process that `does` the work, such as the first of each machine."""
    by_all(exchange, work if does else lambda: None, where)


def by_all(exchange: Exchange, work: Callable[[], T], where: str) -> T:
    """Run some work in each process without collectives; a WidenetError of one is raised in all."""
    error: WidenetError | None = None
    try:
        result = work()
    except WidenetError as raised:
        error = raised
    for error_there in exchange.collect(error, where):
        if error_there is not None:
            raise error_there
    return result
