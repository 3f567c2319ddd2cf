"""A plan as plain values: shards, bytes, traffic, operations, and the fewest devices that hold it."""

from dataclasses import asdict, replace
from typing import Any

from widenet.plan.fit import smallest, with_room
from widenet.plan.job import Job
from widenet.plan.memory import memory
from widenet.plan.streaming import elsewhere_bytes
from widenet.plan.tiles import held
from widenet.plan.work import work


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
    own = held(job.training.shards, process, job.num_processes)
    weights = job.layout.weights.items()
    rows = {name: job.rows(weight, process) for name, weight in weights if weight.wide and weight.columns}
    return {
        "process": process,
        "shards": [own.start, own.stop],
        "rows": rows,
        "memory_bytes": memory(job, process).total,
    }
