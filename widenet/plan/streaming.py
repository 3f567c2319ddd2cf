"""Weights that lie on a disk or in the host's memory: which ones, and how much of them a device holds."""

import math
from collections.abc import Sequence

from widenet.plan.job import Job
from widenet.plan.layout import Weight
from widenet.plan.tiles import predicted_units, tile_units
from widenet.spec.layers import OutputLayer

REQUEST_BYTES = 2**21
"""Bytes of a tensor that are read or written at once: one of the processor's large pages."""

AROUND_BYTES = 3 * 2**24
"""Bytes of a weight and its state in memory besides the tile at work: read ahead, or not yet written.

A virtual disk may tell of its requests only when it has served all of them. It then has nothing to do until
a thread has taken the results: the more requests there are, the less often.
"""

NUM_WINDOWS = 2
"""Windows on a CUDA device: while one is at work, the other gives its rows back and fetches the next ones."""

ALIGNED_BYTES = 512
"""CUDA allocates memory at multiples of this.

Vendors' products choose their code by the alignment of their operands. A row in a window begins as far behind
such a multiple as it would in a weight on the device, so that its products have the same bits.
"""

BLOCK_BYTES = 2**23
"""Bytes of a weight that are read together without tiles: for norms, penalties and attributes."""

LIMITED_ROWS = 16_384
"""Rows of an input's weight that are read together for the lengths of its columns, under "weight_norm"."""

NAMES = {"host": "Weights in the host's memory", "disk": "Weights on a disk"}
"""The beginnings of sentences about weights that lie elsewhere than on the device."""

_PAGE = 4096


def room_for(num_bytes: int) -> int:
    """Return the bytes of a window for a tensor of some bytes, which begins anywhere in the first ones."""
    return (-(-num_bytes // ALIGNED_BYTES) + 1) * ALIGNED_BYTES


def is_elsewhere(job: Job, weight: Weight) -> bool:
    """Return whether a weight of a job lies on a disk or in the memory of a CUDA device's host."""
    return job.weights_in != "device" and weight.has_vectors


def remembers_moves(job: Job, weight: Weight) -> bool:
    """Return whether a weight stores the last step of each row."""
    return job.training.idles and weight.wide and weight.trained and not weight.by_tiles


def elsewhere_bytes(job: Job, process: int) -> int:
    """Return the bytes of a process's weights and state on a disk or in the host's memory."""
    return sum(_held_bytes(job, weight, process) for weight in job.layout.weights.values())


def window_bytes(job: Job, process: int) -> int:
    """Return the bytes that the device's memory holds of the weights and state that lie elsewhere."""
    held = elsewhere_bytes(job, process)
    if not held:
        return 0
    rows = sum(touched_bytes(job, name, process) for name in job.layout.weights)
    if job.weights_in == "host":
        return NUM_WINDOWS * _window_on_device(job) + rows
    threads = min(job.num_threads, job.num_held(process))
    by_tiles = max(_window_of_tiles(job, layer) for layer in job.network.outputs)
    by_blocks = {name: _window_of_blocks(job, weight) for name, weight in job.layout.weights.items()}
    limited = [name for name, weight in job.layout.weights.items() if _has_limited_columns(weight)]
    behind = max((by_blocks[name] for name in limited), default=0)  # while rows of tiles are written
    return min(held, threads * max(by_tiles + behind, *by_blocks.values()) + rows)


def _held_bytes(job: Job, weight: Weight, process: int) -> int:
    if not is_elsewhere(job, weight):
        return 0
    on_host = job.weights_in == "host" and remembers_moves(job, weight)
    return job.stored_rows(weight, process) * (with_state(job, weight) + 4 * on_host)


def with_state(job: Job, weight: Weight) -> int:
    """Return the bytes of a row and its state."""
    return weight.row_bytes * num_tensors(job, weight)


def num_tensors(job: Job, weight: Weight) -> int:
    """Return the number of tensors of a weight: itself, and those of its state if it is trained."""
    return 1 + len(job.training.optimizer.state) * weight.trained


def chunk_rows(row_bytes: Sequence[int]) -> int:
    """Return the rows of a chunk, which is read and written together, of tensors whose rows have some bytes.

    It begins with a page of each tensor.
    """
    whole_pages = max(_PAGE // math.gcd(size, _PAGE) for size in row_bytes)
    return max(REQUEST_BYTES // max(row_bytes) // whole_pages, 1) * whole_pages


def around_bytes(row_bytes: Sequence[int]) -> int:
    """Return the bytes in memory besides those at work, of tensors whose rows have some bytes.

    They are at least those of two chunks: one is read while the other is written.
    """
    return max(AROUND_BYTES, 2 * chunk_rows(row_bytes) * sum(row_bytes))


def _window_of_tiles(job: Job, layer: OutputLayer) -> int:
    """Return the bytes of the chunks that a thread has in memory: those of a tile, and around it."""
    weight = job.layout.of_output(layer.name)
    if not is_elsewhere(job, weight) or not weight.by_tiles:
        return 0
    row_bytes = [weight.row_bytes] * num_tensors(job, weight)
    at_work = _rows_at_work(tile_units(job.vectors(layer.name), job.device), chunk_rows(row_bytes))
    return at_work * sum(row_bytes) + around_bytes(row_bytes)


def _window_of_blocks(job: Job, weight: Weight) -> int:
    """Return the bytes that a thread has in memory of a weight alone, which it reads in blocks."""
    if not is_elsewhere(job, weight):
        return 0
    row_bytes = [weight.row_bytes]
    at_work = _rows_at_work(_rows_together(weight), chunk_rows(row_bytes))
    return at_work * weight.row_bytes + around_bytes(row_bytes)


def _rows_at_work(tile: int, chunk: int) -> int:
    """Return the most rows of the chunks that hold a tile, if tiles and chunks follow each other from 0 on.

    A tile begins at most a chunk less their greatest common divisor behind the beginning of a chunk.
    """
    return -(-(chunk - math.gcd(tile, chunk) + tile) // chunk) * chunk


def block_rows(row_bytes: int) -> int:
    """Return the rows of a block."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def _rows_together(weight: Weight) -> int:
    """Return the most rows of a weight that are read together where no tiles are cut."""
    return max(block_rows(weight.row_bytes), LIMITED_ROWS if _has_limited_columns(weight) else 0)


def _has_limited_columns(weight: Weight) -> bool:
    return weight.norm_limit is not None and weight.rows_are_features


def _window_on_device(job: Job) -> int:
    """Return the bytes of a window on the device: the largest tile of a pass, with its state in an update.

    Evaluations pass over larger tiles than steps of large batches, but over weights alone.
    """
    largest = 0
    for weight in job.layout.weights.values():
        if is_elsewhere(job, weight):
            rows = min(_rows_together(weight), job.shards(weight).size(0))
            largest = max(largest, room_for(rows * weight.row_bytes))
    for layer in job.network.outputs:
        weight = job.layout.of_output(layer.name)
        if is_elsewhere(job, weight):
            shard = job.shards(weight).size(0)
            most = max((job.vectors(user.name) for user in _users(job, weight)), default=1)
            tile = min(tile_units(most, job.device), shard)
            evaluated = min(predicted_units(weight.columns or 0, job.device), shard)
            updated = num_tensors(job, weight) * room_for(tile * weight.row_bytes) if weight.by_tiles else 0
            is_ranked = job.training.evaluation is not None
            largest = max(largest, updated, is_ranked * room_for(evaluated * weight.row_bytes))
    return largest


def _users(job: Job, weight: Weight) -> list[OutputLayer]:
    """Return the outputs of a weight, which pass over equal tiles."""
    return [layer for layer in job.network.outputs if job.layout.of_output(layer.name) is weight]


def touched_bytes(job: Job, name: str, process: int) -> int:
    """Return the bytes of the rows that a batch touches, with their state; on a disk, of their pages."""
    weight = job.layout.weights[name]
    if not is_elsewhere(job, weight):
        return 0
    share = job.num_held(process) / job.training.shards
    rows = sum(
        job.num_examples * job.entries_of(source) * share
        for (_, source), link in job.layout.links.items()
        if link.weight == name and source in {layer.name for layer in job.network.inputs}
    )
    rows += sum(
        job.units_at_work(layer, process)
        for layer in job.network.outputs
        if layer.sample is not None and job.layout.links[layer.name, ""].weight == name
    )
    if job.weights_in == "host":
        if weight.by_tiles and job.training.precision != "float32":  # of whose targets kernels read the rows
            rows += sum(
                job.vectors(layer.name) * job.targets_of(layer) * share
                for layer in _users(job, weight)
                if layer.predict == "next" or layer.field in job.entries
            )
        moved = 4 * remembers_moves(job, weight)
        return round(rows) * (weight.row_bytes if weight.by_tiles else with_state(job, weight) + moved)
    pages = -(-weight.row_bytes // _PAGE) * _PAGE * num_tensors(job, weight)
    return min(round(rows) * pages, _held_bytes(job, weight, process))
