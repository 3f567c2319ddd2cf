"""Weights that lie on a disk: which ones, and how much of them memory holds."""

from widenet.plan.job import Job
from widenet.plan.layout import Weight
from widenet.plan.tiles import tile_units
from widenet.spec.layers import OutputLayer

CHUNK_BYTES = 2**23
"""Bytes of a weight and its state that are read or written together."""

CHUNKS_AHEAD = 2
"""Chunks that are read ahead of the tile at work."""

CHUNKS_BEHIND = 4
"""Chunks of a process that are written at the same time, behind the tiles."""

_PAGE = 4096


def streams(weight: Weight) -> bool:
    """Return whether a weight lies on a disk if wide weights do.

    Biases, weights by columns and those of split layers do not.
    """
    return weight.wide and bool(weight.columns) and not (weight.by_columns or weight.split)


def on_disk(job: Job, weight: Weight) -> bool:
    """Return whether a weight of a job lies on a disk."""
    return job.weights_in == "disk" and streams(weight)


def scratch_bytes(job: Job, process: int) -> int:
    """Return the bytes of a process's weights and state on a disk."""
    return sum(_held_bytes(job, weight, process) for weight in job.layout.weights.values())


def window_bytes(job: Job, process: int) -> int:
    """Return the bytes that memory holds of the weights and state on a disk."""
    held = scratch_bytes(job, process)
    if not held:
        return 0
    threads = min(job.num_threads, job.num_held(process))
    by_tiles = max((_window_of_tiles(job, layer) for layer in job.network.outputs), default=0)
    rows = sum(touched_bytes(job, name, process) for name in job.layout.weights)
    behind = CHUNKS_BEHIND * CHUNK_BYTES if by_tiles else 0
    return min(held, threads * by_tiles + behind + rows)


def _held_bytes(job: Job, weight: Weight, process: int) -> int:
    return job.rows(weight, process) * with_state(job, weight) if on_disk(job, weight) else 0


def with_state(job: Job, weight: Weight) -> int:
    """Return the bytes of a row and its state."""
    return weight.row_bytes * (1 + len(job.training.optimizer.state))


def _window_of_tiles(job: Job, layer: OutputLayer) -> int:
    """Return the bytes of the chunks that a thread has in memory: those of a tile, and those ahead."""
    weight = job.layout.of_output(layer.name)
    if not on_disk(job, weight) or not weight.by_tiles:
        return 0
    tile = tile_units(job.vectors(layer.name), job.device) * with_state(job, weight)
    return (-(-tile // CHUNK_BYTES) + 1 + CHUNKS_AHEAD) * CHUNK_BYTES


def touched_bytes(job: Job, name: str, process: int) -> int:
    """Return the bytes of the pages that hold the rows that a batch touches, with their state."""
    weight = job.layout.weights[name]
    if not on_disk(job, weight):
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
    rows += sum(
        job.num_examples * job.entries[layer.field] * share
        for layer in job.network.outputs
        if job.defers_rows(layer) and job.layout.links[layer.name, ""].weight == name
    )
    pages = -(-weight.row_bytes // _PAGE) * _PAGE * (1 + len(job.training.optimizer.state))
    return min(round(rows) * pages, _held_bytes(job, weight, process))
