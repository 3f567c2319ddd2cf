"""What steps of all rows take beside tiles: those that catch up, and those that are pruned."""

from widenet.plan.job import Job
from widenet.plan.layout import Weight
from widenet.plan.pruning import schedule_of
from widenet.plan.rounded import copied_row_bytes
from widenet.plan.streaming import BLOCK_BYTES, block_rows

_KEYS = 8
"""Bytes of keys and of chosen columns of a pruned block, for each byte of its numbers; see `largest`."""


def row_copies(job: Job, weight: Weight) -> int:
    """Return the bytes that a step has beside each row: float32 copies, or which of its numbers are zero."""
    zeros = 0 if schedule_of(job.layout, weight) is None else weight.row_length
    return copied_row_bytes(job.training, weight) + zeros


def all_rows_bytes(job: Job, process: int) -> int:
    """Return the bytes of a process that lets all rows of a wide weight catch up, or prunes them."""
    most, threads = 0, min(job.num_threads, job.num_held(process))
    for weight in job.layout.weights.values():
        if not weight.has_vectors or not weight.trained:
            continue
        most = max(most, block_rows(weight.row_bytes) * copied_row_bytes(job.training, weight))
        if schedule_of(job.layout, weight) is not None:
            block = min(BLOCK_BYTES, job.shards(weight).size(0) * weight.row_bytes)
            most = max(most, threads * _KEYS * block)
    return most
