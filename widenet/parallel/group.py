"""The group of processes that train one network: joins it as the launcher describes, or uses a joined one."""

import atexit
import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from widenet.errors import GroupError, OptionError, WidenetError
from widenet.model.exchange import Exchange
from widenet.parallel.heartbeat import JOIN_SECONDS, TIMEOUT_SECONDS, Heartbeat
from widenet.parallel.launch import LAUNCHER
from widenet.parallel.launcher import launcher_variable, started_by_mpi, started_by_pmix_alone
from widenet.parallel.line import Line
from widenet.parallel.local import LocalExchange
from widenet.parallel.processes import ProcessExchange
from widenet.parallel.rendezvous import attempt_name, choose_interface, store_of_this_launch
from widenet.plan.fit import (
    check_disk,
    check_fits,
    check_fits_here,
    check_host,
    fits_device,
    fits_here,
    with_place,
    with_room,
    with_snapshots,
)
from widenet.plan.job import Job
from widenet.plan.machine import available_memory, available_threads
from widenet.plan.memory import PROGRAM_BYTES
from widenet.plan.streaming import elsewhere_bytes

T = TypeVar("T")

COLLECTIVE_SECONDS = 3600
"""Seconds that a collective waits for processes whose heartbeats arrive, but which do not take part."""

_heartbeat: Heartbeat | None = None
"""The heartbeat of the group that this process has joined by `join`."""


def num_processes() -> int:
    """Processes in the group that this process belongs to; 1 without a launcher."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    size = launcher_variable("WORLD_SIZE") or "1"
    if started_by_pmix_alone() and "WORLD_SIZE" not in os.environ:
        raise OptionError(
            "PMIX_RANK says that this is one of several processes, but nothing says how many there are."
            " Start them by Open MPI's mpirun, or set WORLD_SIZE and MASTER_ADDR, as in"
            ' "prterun -n 3 -x WORLD_SIZE=3 -x MASTER_ADDR=127.0.0.1 widenet ...".'
        )
    if not size.isdecimal():
        raise GroupError(
            f'the environment variable WORLD_SIZE must be a whole number; got "{size}".'
            " Start the group by torchrun."
        )
    return int(size)


def is_leader() -> bool:
    """Whether this process writes files and messages for its group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return num_processes() == 1 or int(launcher_variable("RANK") or 0) == 0


def device_for(name: str | None) -> torch.device:
    """Return the device of this process: the CPU, or a CUDA device of its own.

    Args:
        name: "cpu" or "cuda"; None uses CUDA if there is a device.

    Raises:
        OptionError: The name is unknown, or there is no CUDA device.
    """
    check_device(name)
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError('device is "cuda", but torch sees no CUDA device. Use "cpu".')
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(launcher_variable("LOCAL_RANK") or 0) % torch.cuda.device_count())


def check_device(name: str | None) -> None:
    """Raise OptionError for a device that no machine has."""
    if name not in (None, "cpu", "cuda"):
        raise OptionError(f'device must be "cpu" or "cuda"; got "{name}".')


def fitted(job: Job, device: torch.device, exchange: Exchange, chooses_place: bool = False) -> Job:
    """Return the job with the options that fit into memory: with or without snapshots and kept logits.

    Args:
        job: The job.
        device: This process's device.
        exchange: Exchange between the processes.
        chooses_place: Whether wide weights go elsewhere if some process has no room for them.

    Raises:
        CapacityError: Some process's device or machine has too little memory; all processes raise this.
    """
    hosts = exchange.collect(socket.gethostname(), "memory")
    device_bytes = 0
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        device_bytes = torch.cuda.mem_get_info(device)[0] + unused + PROGRAM_BYTES["cuda"]
    num_local, available = hosts.count(socket.gethostname()), available_memory()
    if device.type == "cpu" and available is not None:
        device_bytes = available // num_local + PROGRAM_BYTES["cpu"]

    def fits(job: Job) -> bool:
        if device.type == "cuda":
            return fits_device(job, device_bytes)
        return available is None or fits_here(job, num_local, available)

    places = exchange.collect(with_place(job, fits).weights_in if chooses_place else job.weights_in, "memory")
    job = replace(job, weights_in=next((place for place in places if place != "device"), "device"))
    if device.type == "cpu" and available is not None:
        job = with_room(job, device_bytes)
    lacks_room = available is not None and not with_snapshots(job, num_local, available).has_snapshots
    if any(exchange.collect(lacks_room, "memory")):
        job = replace(job, has_snapshots=False)

    def check() -> None:
        if device.type == "cuda":
            check_fits(job, device_bytes)
            check_host(job, num_local, available or sys.maxsize)
        elif available is not None:
            check_fits_here(job, num_local, available)

    by_all(exchange, check, "memory")
    return with_room(job, device_bytes)


def check_room_on_disk(job: Job, folder: Path, exchange: Exchange) -> None:
    """Raise CapacityError in every process if those of one machine need more of its disk than is free.

    Args:
        job: The job.
        folder: Folder of this process's file, or the folder that it will be made in.
        exchange: Exchange between the processes.
    """
    process = distributed.get_rank() if distributed.is_initialized() else 0
    everyone = exchange.collect((socket.gethostname(), elsewhere_bytes(job, process)), "scratch")
    here = [size for host, size in everyone if host == socket.gethostname()]
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    by_all(exchange, lambda: check_disk(here, shutil.disk_usage(there).free, there), "scratch")


def join(device: torch.device, timeout: float = TIMEOUT_SECONDS) -> None:
    """Join the group that the launcher describes; does nothing if this process has joined a group already.

    Every process of the group must call this. The process leaves the group when it ends. In a group that a
    script has joined itself there are no heartbeats.

    Args:
        device: This process's device.
        timeout: Seconds without a heartbeat after which the others report a process as lost.

    Raises:
        GroupError: The group cannot be joined.
        OptionError: `timeout` is below 1 second.
    """
    if not timeout >= 1:
        raise OptionError(f"timeout must be at least 1 second; got {timeout!r}.")
    if _heartbeat is not None:
        _heartbeat.timeout = timeout
    if num_processes() == 1 or distributed.is_initialized():
        return
    lacks_address = _lacks_address()
    os.environ["LOCAL_WORLD_SIZE"] = launcher_variable("LOCAL_WORLD_SIZE") or "1"
    os.environ["MASTER_ADDR"] = launcher_variable("MASTER_ADDR") or "127.0.0.1"
    os.environ["MASTER_PORT"] = launcher_variable("MASTER_PORT") or "29500"
    for name in ("RANK", "WORLD_SIZE"):
        value = launcher_variable(name)
        if value is None or not value.isdecimal():
            raise GroupError(
                f"the environment variable {name} of a group must be a whole number; got {value!r}."
                " Start it by torchrun."
            )
        os.environ[name] = value
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        _join(device, timeout, lacks_address)
    except (OSError, RuntimeError, ValueError) as error:
        rank, size = launcher_variable("RANK"), launcher_variable("WORLD_SIZE")
        raise GroupError(f"process {rank} cannot join its group of {size} processes: {error}") from error


def _lacks_address() -> bool:
    """Whether mpirun has started the whole group on this machine without setting an address for it.

    Raises:
        GroupError: The group is on several machines and has no address.
    """
    if not started_by_mpi() or launcher_variable("MASTER_ADDR") is not None:
        return False
    size, here = launcher_variable("WORLD_SIZE"), launcher_variable("LOCAL_WORLD_SIZE")
    if size != here:
        raise GroupError(
            f"mpirun has started {size} processes, {here} of them on this machine, and nothing says where"
            " they meet. Set MASTER_ADDR to the machine of the first process:"
            " mpirun -x MASTER_ADDR=node1 (Open MPI), mpirun -genv MASTER_ADDR node1 (MPICH)."
        )
    return launcher_variable("MASTER_PORT") is None


def _leave() -> None:
    """Leave the group; end this process at once if a lost process made its work fail.

    A blocked collective would keep the group from being destroyed, and could abort Python while it ends. A
    process that needed nothing more from the others keeps its exit status, even if the process that holds the
    store ends first.
    """
    if _heartbeat is not None and _heartbeat.has_failed():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(GroupError.status)
    if _heartbeat is not None:
        _heartbeat.drain()
        _heartbeat.stop()
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _join(device: torch.device, timeout: float, lacks_address: bool) -> None:
    """Connect to the launcher's store or to one that process 0 holds, start the heartbeat, form the group."""
    global _heartbeat
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    join_timeout = timedelta(seconds=JOIN_SECONDS)
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosted = not is_agents and LAUNCHER not in os.environ
    if not hosted:
        # This fails at once if the launcher is gone; TCPStore would fail only after its timeout.
        socket.create_connection((host, port), JOIN_SECONDS).close()
    store: Store
    if lacks_address:
        store = store_of_this_launch(rank, size, join_timeout)
        host, port = store.host, store.port
    else:
        is_master = hosted and rank == 0
        store = TCPStore(host, port, is_master=is_master, timeout=join_timeout, wait_for_workers=False)
    with socket.create_connection((host, port), JOIN_SECONDS) as connection:
        choose_interface(connection.getsockname()[0])
    beats: Store = TCPStore(host, port, timeout=join_timeout, wait_for_workers=False)
    if is_agents:
        name = attempt_name(store, rank, size, join_timeout)
        store, beats = PrefixStore(name, store), PrefixStore(name, beats)
    _heartbeat = Heartbeat(beats, rank, size, f"{host}:{port}", timeout, hosted, lambda: _is_busy(device))
    _heartbeat.start()
    atexit.register(_leave)
    line = Line()
    _heartbeat.guard(line)
    init = partial(
        distributed.init_process_group,
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=COLLECTIVE_SECONDS),
    )
    if device.type == "cuda":
        line.submit(init, "nccl").result()
        return
    line.submit(init, "gloo").result()
    # Without a barrier, a process that ends now would cut connections that the others still set up.
    line.submit(distributed.barrier).result()


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
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return LocalExchange(num_shards, threads)
    return ProcessExchange(num_shards, device, threads, _heartbeat)


def by_leader(exchange: Exchange, work: Callable[[], object], where: str) -> None:
    """Run some work in the leader while the others wait; a WidenetError of it is raised in all processes."""
    by_some(exchange, exchange.leads, work, where)


def by_some(exchange: Exchange, does: bool, work: Callable[[], object], where: str) -> None:
    """As `by_leader`, in every process that `does` the work, such as the first of each machine."""
    by_all(exchange, work if does else lambda: None, where)


def of_all(exchange: Exchange, make: Callable[[], T], where: str) -> T:
    """Return what some work makes in this process; a WidenetError of one process is raised in all."""
    made: list[T] = []
    by_all(exchange, lambda: made.append(make()), where)
    return made[0]


def by_all(exchange: Exchange, work: Callable[[], object], where: str) -> None:
    """Run some work in each process without collectives; a WidenetError of one is raised in all."""
    error: WidenetError | None = None
    try:
        work()
    except WidenetError as raised:
        error = raised
    for error_there in exchange.collect(error, where):
        if error_there is not None:
            raise error_there
