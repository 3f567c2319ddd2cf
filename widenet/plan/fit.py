"""Checks whether a training fits its devices, finds the fewest that hold it, and reports a plan."""

from dataclasses import asdict, replace
from typing import Any

from widenet.errors import CapacityError
from widenet.plan.layout import Job
from widenet.plan.memory import Memory, memory, work
from widenet.plan.numbers import amount
from widenet.plan.streaming import elsewhere_bytes
from widenet.plan.tiles import KEPT_BYTES, worthwhile
from widenet.spec.training import MOST_SHARDS


def with_room(job: Job, device_bytes: int) -> Job:
    """Return the job with a limit on kept logits that fits its memory; the bits do not change.

    The outputs share half of the remaining memory equally, because logits and deltas may be kept together. On
    a CPU the limit changes only for weights on a disk, which are there because memory is short.
    """
    if job.device == "cpu" and job.weights_in == "device":
        return job
    left = max(device_bytes - memory(replace(job, kept_bytes=0)).total, 0) // (2 * len(job.network.outputs))
    return replace(job, kept_bytes=left if job.device == "cuda" else min(left, KEPT_BYTES["cpu"]))


def least(job: Job) -> Memory:
    """Return what a process needs if it keeps no logits between passes where it can do without."""
    keeps = job.device == "cpu" and job.weights_in == "device"
    return memory(replace(job, kept_bytes=None if keeps else 0, has_snapshots=False))


def with_place(job: Job, device_bytes: int) -> Job:
    """Return the job with its wide weights on the device if it fits, else elsewhere if it fits then.

    That is on a disk for a CPU, and in the host's memory for CUDA.
    """
    other = replace(job, weights_in="host" if job.device == "cuda" else "disk")
    return next((each for each in (job, other) if least(each).total <= device_bytes), job)


def check_host(job: Job, num_local: int, available_bytes: int) -> None:
    """Raise CapacityError if the host's memory does not hold the wide weights of its processes."""
    held = elsewhere_bytes(job, 0) * num_local
    if job.weights_in == "host" and held > available_bytes:
        rule = f"must have {amount(held)} for wide weights; it has {amount(available_bytes)} left"
        raise CapacityError(rule, place="memory of this machine")


def with_snapshots(job: Job, num_local: int, available_bytes: int) -> Job:
    """Return the job, without snapshots if the free memory of a machine has no room for them.

    Args:
        job: The job.
        num_local: Number of its processes on this machine.
        available_bytes: Free memory of the machine.
    """
    is_cpu, needed = job.device == "cpu", memory(replace(job, device="cpu"))
    taken = needed.total - needed.program if is_cpu else needed.snapshot
    return job if taken * num_local <= available_bytes else replace(job, has_snapshots=False)


def smallest(job: Job, device_bytes: int) -> Job | None:
    """Return the job on the fewest devices that hold it, with more shards if needed; None if none do."""
    more = [2**power for power in range(MOST_SHARDS.bit_length()) if 2**power > job.training.shards]
    for num_shards in [job.training.shards, *more]:
        layout = job.layout.with_shards(num_shards)
        for num_processes in worthwhile(num_shards):
            candidate = with_room(replace(job, layout=layout, num_processes=num_processes), device_bytes)
            if memory(candidate).total <= device_bytes:
                return candidate
    return None


def check_fits(job: Job, device_bytes: int) -> None:
    """Raise CapacityError if the largest process needs more than its memory: a device's, or its share."""
    needed = memory(with_room(job, device_bytes))
    if needed.total > device_bytes:
        rule = f"must have {amount(needed.total)} for each process; it has {amount(device_bytes)}"
        place = "memory of a device" if job.device == "cuda" else "memory of this machine"
        raise CapacityError(rule, place=place)


def report(job: Job, device_bytes: int | None, more: bool = True) -> dict[str, Any]:
    """Return the JSON of `widenet plan`: bytes, counts and half-open ranges of shards.

    Args:
        job: The job.
        device_bytes: Memory of a device; None: unknown, so that the report does not say whether the job fits.
        more: Whether to look for the fewest devices that hold the job.
    """
    if device_bytes is not None:
        job = with_room(job, device_bytes)
        if job.device == "cpu" and memory(job).total > device_bytes:  # as `train` runs it
            job = replace(job, has_snapshots=False)
    needed = memory(job)
    plan: dict[str, Any] = {
        "device": job.device,
        "shards": job.training.shards,
        "batch_size": job.num_examples,
        "entries_per_example": dict(job.entries),
        "weights": {
            name: {
                "rows": weight.rows,
                "columns": weight.columns,
                "bytes": weight.rows * weight.row_bytes,
                "wide": weight.wide,
            }
            for name, weight in job.layout.weights.items()
        },
        "memory_bytes": {**asdict(needed), "total": needed.total},
        "work": asdict(work(job)),
        "checkpoint_bytes": checkpoint_bytes(job),
        "weights_in": job.weights_in,
        "scratch_bytes": elsewhere_bytes(job, 0),
        "processes": [_process(job, process) for process in range(job.num_processes)],
    }
    if device_bytes is not None:
        fewest = smallest(replace(job, weights_in="device"), device_bytes) if more else None
        plan["device_memory_bytes"] = device_bytes
        plan["fits"] = needed.total <= device_bytes
        if more:
            plan["fewest"] = fewest and {
                "processes": fewest.num_processes,
                "shards": fewest.training.shards,
                "memory_bytes": memory(fewest).total,
            }
    return plan


def checkpoint_bytes(job: Job) -> int:
    """Return the bytes of a checkpoint on disk: weights and state of a single process."""
    whole = memory(replace(job, num_processes=1, weights_in="device", device="cpu"))
    return whole.weights + whole.state


def _process(job: Job, process: int) -> dict[str, Any]:
    own = job.held(process)
    weights = job.layout.weights.items()
    rows = {name: job.rows(weight, process) for name, weight in weights if weight.wide and weight.columns}
    return {
        "process": process,
        "shards": [own.start, own.stop],
        "rows": rows,
        "memory_bytes": memory(job, process).total,
    }
