"""Weights that lie on a disk or in the host's memory: which ones, and how much of them a device holds."""

from collections.abc import Iterator

from widenet.plan.layout import Job, Weight
from widenet.plan.tiles import predicted_units, tile_units

REQUEST_BYTES = 2**21
"""Bytes of a tensor that are read or written at once: one of the processor's large pages."""

NUM_AHEAD, NUM_BEHIND = 4, 4
"""Requests for each tensor that a pass has read ahead of its tile, and that are written behind it."""

PAGE_BYTES = 4096
"""Disks read and write multiples of this past the system's cache."""

ALIGNED_BYTES = 512
"""CUDA allocates memory at multiples of this.

Vendors' products choose their code by the alignment of their operands. A copied row begins as far behind
such a multiple as it would in a weight on the device, so that its products have the same bits.
"""

BLOCK_BYTES = 2**23
"""Bytes of a weight that are read together without tiles: for norms, penalties and attributes."""

LIMITED_ROWS = 16_384
"""Rows of an input's weight that are read together for the lengths of its columns, under "weight_norm"."""

NAMES = {"host": "Weights in the host's memory", "disk": "Weights on a disk"}
"""The beginnings of sentences about weights that lie elsewhere than on the device."""


def room_for(num_bytes: int) -> int:
    """Return the bytes on a device for a copy of some bytes, which begins anywhere in the first ones."""
    return (-(-num_bytes // ALIGNED_BYTES) + 1) * ALIGNED_BYTES


def is_elsewhere(job: Job, weight: Weight) -> bool:
    """Return whether a weight of a job lies on a disk or in the memory of a CUDA device's host."""
    return job.weights_in != "device" and weight.has_vectors


def remembers_moves(job: Job, weight: Weight) -> bool:
    """Return whether a weight stores the last step of each row."""
    return job.training.idles and weight.wide and weight.trained and not weight.by_tiles


def has_row_state(job: Job, weight: Weight) -> bool:
    """Return whether the optimizer keeps a single number of state for each row of a weight."""
    return getattr(job.training.optimizer, "per_row", False) and weight.has_vectors and weight.trained


def number_bytes(job: Job, weight: Weight) -> int:
    """Return the bytes of a row's last step, or of its only number of state: in memory if not on the host."""
    return 4 * (remembers_moves(job, weight) or has_row_state(job, weight))


def elsewhere_bytes(job: Job, process: int) -> int:
    """Return the bytes of a process's weights and state on a disk or in the host's memory."""
    return sum(_held_bytes(job, weight, process) for weight in job.layout.weights.values())


def window_bytes(job: Job, process: int) -> int:
    """Return the bytes that the device's memory holds of the weights and state that lie elsewhere."""
    held = elsewhere_bytes(job, process)
    if not held:
        return 0
    rows = sum(touched_bytes(job, name, process) for name in job.layout.weights)
    passes = [own for weight in job.layout.weights.values() for own in _passes(job, weight)]
    if job.weights_in == "host":
        return max(num * room_for(size) for num, size in passes) + rows
    threads = min(job.num_threads, job.num_held(process))
    return min(held, threads * max(num * _in_memory(size) for num, size in passes) + rows)


def _held_bytes(job: Job, weight: Weight, process: int) -> int:
    numbers = number_bytes(job, weight) if job.weights_in == "host" else 0
    num_bytes = weight.row_bytes * num_tensors(job, weight) + numbers
    return is_elsewhere(job, weight) * job.stored_rows(weight, process) * num_bytes


def num_tensors(job: Job, weight: Weight) -> int:
    """Return the number of tensors of a weight: itself, and those of its state of the same shape."""
    of_state = 0 if has_row_state(job, weight) else len(job.training.optimizer.state)
    return 1 + of_state * weight.trained


def _passes(job: Job, weight: Weight) -> Iterator[tuple[int, int]]:
    """Yield the passes over a shard of a weight that lies elsewhere: number of tensors, bytes of a tile each.

    Evaluations pass over larger tiles than steps of large batches, but over weights alone.
    """
    if not is_elsewhere(job, weight):
        return
    limited = LIMITED_ROWS if weight.norm_limit is not None and weight.rows_are_features else 0
    rows = [(1, max(block_rows(weight.row_bytes), limited))]
    users = [layer for layer in job.network.outputs if job.layout.of_output(layer.name) is weight]
    if users and weight.by_tiles:
        most = max(job.vectors(user.name) for user in users)
        rows.append((num_tensors(job, weight), tile_units(most, job.device)))
    if users and job.training.evaluation is not None:
        rows.append((1, predicted_units(weight.columns or 0, job.device)))
    for num, of_tile in rows:
        yield num, min(of_tile, job.shards(weight).size(0)) * weight.row_bytes


def _in_memory(at_work: int) -> int:
    """Return the bytes of the requests of a tensor in memory, of which so many bytes or one request work."""
    requests = -(-max(at_work, REQUEST_BYTES) // REQUEST_BYTES) + 1
    return (requests + NUM_AHEAD + NUM_BEHIND) * REQUEST_BYTES


def block_rows(row_bytes: int) -> int:
    """Return the rows of a block."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def touched_bytes(job: Job, name: str, process: int) -> int:
    """Return the bytes of the rows that a batch touches, with their state; on a disk, of their pages."""
    weight, layout = job.layout.weights[name], job.layout
    if not is_elsewhere(job, weight):
        return 0
    share, inputs = job.num_held(process) / job.training.shards, {layer.name for layer in job.network.inputs}
    read = [source for (_, source), link in layout.links.items() if link.weight == name and source in inputs]
    sampled = [layer for layer in job.network.outputs if layer.sample is not None]
    sampled = [layer for layer in sampled if layout.of_output(layer.name) is weight]
    touched = sum(job.num_examples * job.entries_of(source) * share for source in read)
    rows = round(touched + sum(job.units_at_work(layer, process) for layer in sampled))
    if job.weights_in == "host":
        tensors = 1 if weight.by_tiles else num_tensors(job, weight)
        return rows * (weight.row_bytes * tensors + number_bytes(job, weight))
    pages = -(-weight.row_bytes // PAGE_BYTES) * PAGE_BYTES * num_tensors(job, weight)
    return min(rows * pages, _held_bytes(job, weight, process))
