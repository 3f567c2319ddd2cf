"""The group of processes that train one network: joined as torchrun, mpirun, Slurm or `--processes`
announce it, or as it already is.
"""

import atexit
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from widenet.errors import GroupError, OptionError, WidenetError
from widenet.model.exchange import Exchange
from widenet.parallel.announced import announced, by_mpi, by_pmix_alone
from widenet.parallel.attempt import name_of_this_attempt
from widenet.parallel.heartbeat import JOIN_SECONDS, TIMEOUT_SECONDS, Heartbeat
from widenet.parallel.interface import choose_interface
from widenet.parallel.launch import LAUNCHER
from widenet.parallel.line import Line
from widenet.parallel.local import LocalExchange
from widenet.parallel.meeting import store_of_this_launch
from widenet.parallel.processes import ProcessExchange
from widenet.plan.fit import check_fits, check_fits_here, with_room, with_snapshots
from widenet.plan.job import Job
from widenet.plan.machine import available_memory, available_threads
from widenet.plan.memory import PROGRAM_BYTES

COLLECTIVE_SECONDS = 3600
"""How long a process waits for processes that are alive, as their heartbeats say, but do not come to the
same point.
"""

_heartbeat: Heartbeat | None = None
"""That of the group that this process has joined by `join`."""


def num_processes() -> int:
    """Processes in the group that this process belongs to; 1 without a launcher."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    size = announced("WORLD_SIZE") or "1"
    if by_pmix_alone() and "WORLD_SIZE" not in os.environ:
        raise OptionError(
            "PMIX_RANK says that this is one of several processes, and nothing says how many there are. Start"
            " them by Open MPI's mpirun, or set WORLD_SIZE and MASTER_ADDR, as in \"prterun -n 3 -x"
            ' WORLD_SIZE=3 -x MASTER_ADDR=127.0.0.1 widenet ...".'
        )
    if not size.isdecimal():
        raise GroupError(
            f'the environment variable WORLD_SIZE must be a whole number; got "{size}". Start the group by'
            " torchrun."
        )
    return int(size)


def is_leader() -> bool:
    """Whether this process is the one that writes and speaks for its group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return num_processes() == 1 or int(announced("RANK") or 0) == 0


def device_for(asked: str | None) -> torch.device:
    """The device of this process: cpu, or its own cuda device; raises OptionError."""
    if asked not in (None, "cpu", "cuda"):
        raise OptionError(f'device must be "cpu" or "cuda"; got "{asked}".')
    if asked == "cuda" and not torch.cuda.is_available():
        raise OptionError('device "cuda" is asked for, but torch sees no CUDA device. Use "cpu".')
    if asked == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(announced("LOCAL_RANK") or 0) % torch.cuda.device_count())


def fitted(job: Job, device: torch.device, exchange: Exchange) -> Job:
    """The job as the devices of all processes have room for it: with or without snapshots, and with logits
    kept or not.

    Raises CapacityError, in every process, where it needs more memory than some process's device, or its
    machine, still has.
    """
    hosts = exchange.collect(socket.gethostname(), "memory")
    unused = (
        torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if device.type == "cuda"
        else 0
    )
    device_bytes = (
        torch.cuda.mem_get_info(device)[0] + unused + PROGRAM_BYTES["cuda"] if device.type == "cuda" else 0
    )

    num_local, available = hosts.count(socket.gethostname()), available_memory()
    lacks_room = available is not None and not with_snapshots(job, num_local, available).has_snapshots
    if any(exchange.collect(lacks_room, "memory")):
        job = replace(job, has_snapshots=False)

    def check() -> None:
        if device.type == "cuda":
            check_fits(job, device_bytes)
        elif available is not None:
            check_fits_here(job, num_local, available)

    by_all(exchange, check, "memory")
    return with_room(job, device_bytes)


def join(device: torch.device, timeout: float = TIMEOUT_SECONDS) -> None:
    """Let this process belong to the group that its launcher announced, until it ends; a group that it
    belongs to already stays as it is.

    Every process of the group must do so. timeout: seconds without a sign of life after which the others
    report a process as lost. In a group that a script has joined itself there are no signs of life. Raises
    GroupError, OptionError.
    """
    if not timeout >= 1:
        raise OptionError(f"timeout must be at least 1 second; got {timeout!r}.")
    if _heartbeat is not None:
        _heartbeat.timeout = timeout
    if num_processes() == 1 or distributed.is_initialized():
        return
    lacks_address = _lacks_address()
    os.environ["LOCAL_WORLD_SIZE"] = announced("LOCAL_WORLD_SIZE") or "1"
    for name, default in {
        "RANK": None,
        "WORLD_SIZE": None,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }.items():
        value = announced(name) or default
        if value is None or (default is None and not value.isdecimal()):
            raise GroupError(
                f"the environment variable {name} of a group must be a whole number; got {value!r}. Start it"
                " by torchrun."
            )
        os.environ[name] = value
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        _join(device, timeout, lacks_address)
    except (OSError, RuntimeError, ValueError) as error:
        raise GroupError(
            f"process {announced('RANK')} cannot join its group of {announced('WORLD_SIZE')} processes:"
            f" {error}"
        ) from error


def _lacks_address() -> bool:
    """Whether mpirun has started this process on the one machine of its group, and nobody has said where the
    group meets.

    Raises GroupError where that must be said.
    """
    if not by_mpi() or announced("MASTER_ADDR") is not None:
        return False
    size, here = announced("WORLD_SIZE"), announced("LOCAL_WORLD_SIZE")
    if size != here:
        raise GroupError(
            f"mpirun has started {size} processes, {here} of them on this machine, and nothing says where"
            " they meet. Set MASTER_ADDR to the machine of the first process: mpirun -x MASTER_ADDR=node1"
            " (Open MPI), mpirun -genv MASTER_ADDR node1 (MPICH)."
        )
    return announced("MASTER_PORT") is None


def _leave() -> None:
    """Leave the group in good order, or, where the loss of a process has ended this one's work, at once.

    A collective that is still blocked would keep the group from being destroyed, and may abort Python while
    it ends. A process that asked nothing more of the others keeps its exit status: the one that holds the
    store may end before it.
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
    """Meet at the store of the launcher, or at one that process 0 holds, and begin to beat before the
    group is formed.
    """
    global _heartbeat
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port, patience = (
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        timedelta(seconds=JOIN_SECONDS),
    )
    lent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    hosted = not lent and LAUNCHER not in os.environ
    if not hosted:
        # Where the launcher is gone this fails at once, TCPStore only in the end.
        socket.create_connection((host, port), JOIN_SECONDS).close()
    store: Store
    if lacks_address:
        store = store_of_this_launch(rank, size, patience)
        host, port = store.host, store.port
    else:
        store = TCPStore(host, port, is_master=hosted and rank == 0, timeout=patience, wait_for_workers=False)
    with socket.create_connection((host, port), JOIN_SECONDS) as reached:
        choose_interface(reached.getsockname()[0])
    beats: Store = TCPStore(host, port, timeout=patience, wait_for_workers=False)
    if lent:
        name = name_of_this_attempt(store, rank, size, patience)
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
    line.submit(
        distributed.barrier
    ).result()  # a process that ended now would break off the others' connections


def _is_busy(device: torch.device) -> bool:
    """Whether work is queued on a device's stream, such as a collective whose partners do not come."""
    return device.type == "cuda" and not torch.cuda.default_stream(device).query()


def exchange_for(num_shards: int, device: torch.device) -> Exchange:
    """The exchange of this process: with the others of the group that it has joined, or with itself."""
    threads = available_threads() if device.type == "cpu" else 1
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return LocalExchange(num_shards, threads)
    return ProcessExchange(num_shards, device, threads, _heartbeat)


def by_leader(exchange: Exchange, work: Callable[[], object], where: str) -> None:
    """Let one process do some work, the others wait for it; what it raises, all raise."""
    by_all(exchange, work if exchange.leads else lambda: None, where)


def by_all(exchange: Exchange, work: Callable[[], object], where: str) -> None:
    """Let every process do some work that asks nothing of the others; what one raises, all raise."""
    error: WidenetError | None = None
    try:
        work()
    except WidenetError as raised:
        error = raised
    for raised_there in exchange.collect(error, where):
        if raised_there is not None:
            raise raised_there
