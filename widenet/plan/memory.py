"""Counts the bytes that one process of a training needs at its peak."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from widenet.plan.descriptions import ASSUMED_ATTRIBUTES
from widenet.plan.job import BATCHES_AHEAD, Job
from widenet.plan.layers import plan_of
from widenet.plan.layout import Weight
from widenet.plan.narrow import workspace
from widenet.plan.neighbour_lists import counting_bytes, fitting_bytes, neighbours_bytes
from widenet.plan.picture_layers import (
    ends_of,
    fields_by_examples,
    most_examples,
    weights_by_examples,
)
from widenet.plan.streaming import is_elsewhere, remembers_moves, window_bytes
from widenet.plan.tiles import BLOCK_NUMBERS, GRADIENT_NUMBERS, are_kept, tile_units
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import PopularitySample

PROGRAM_BYTES = {"cpu": 480_000_000, "cuda": 1_000_000_000}
"""Python, torch and their libraries: measured by `python -m benchmarks memory`, assumed for a CUDA device."""
_LANES, _APART = 32, 16
"""Numbers in a row of kept logits: a multiple of the most lanes, and some beside them."""

WORDS = {
    "state": "optimizer state",
    "program": "Python and torch",
    "window": "weights elsewhere, in part",
}
"""The attributes of `Memory` in words; the others are words themselves."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process.

    Attributes:
        weights: Weights of its shards and of the trunk, and the popularity of features if needed.
        state: The optimizer's state, and the last step of each row.
        activations: Values and gradients of the layers for one batch.
        workspace: Further memory of a step.
        program: Python and torch.
        snapshot: The copy from which checkpoints are written in the background; 0 on CUDA, where it is in the
            machine's memory.
        window: What the device holds of the weights and state that lie on a disk or in the host's memory.
    """

    weights: int
    state: int
    activations: int
    workspace: int
    program: int
    snapshot: int = 0
    window: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts."""
        needed = self.weights, self.state, self.activations, self.workspace, self.program
        return sum(needed) + self.snapshot + self.window


def memory(job: Job, process: int | None = None) -> Memory:
    """Return the memory that a process needs of its device; for None, the largest need of all processes.

    The first process holds the most rows. The last one has the fewest, but may need more if it alone has room
    to keep logits.
    """
    if process is None:
        ends = sorted({0, job.num_processes - 1})
        return max((memory(job, process) for process in ends), key=lambda needed: needed.total)
    rows = {
        name: 0 if is_elsewhere(job, weight) else job.stored_rows(weight, process)
        for name, weight in job.layout.weights.items()
    }
    counted = sum(
        4 * job.layout.units[layer.name] for layer in job.network.inputs if layer.popularity_damping
    )
    if job.device == "cpu":  # a sample is drawn by the host
        counted += sum(_line(job, layer, process) for layer in job.network.outputs)
    counted += sum(neighbours_bytes(job, layer, process) for layer in job.network.outputs)
    counted += sum(_attributes(job, weight, process) for weight in job.layout.weights.values())
    moved = sum(
        4 * _touchable(job, weight, process)
        for weight in job.layout.weights.values()
        if remembers_moves(job, weight) and not (job.weights_in == "host" and weight.has_vectors)
    )
    weights, state = counted, moved
    for name, weight in job.layout.weights.items():
        weights += rows[name] * weight.row_bytes
        if weight.trained:
            state += rows[name] * len(job.training.optimizer.state) * weight.row_bytes
    return Memory(
        weights=weights,
        state=state,
        activations=_activations(job, process),
        workspace=max(_phases(job, process)),
        program=PROGRAM_BYTES[job.device],
        snapshot=weights + state if job.in_background and job.device == "cpu" else 0,
        window=window_bytes(job, process),
    )


def snapshot_bytes(job: Job) -> int:
    """Return the bytes of the machine's memory that a process's snapshot takes, on any device."""
    return memory(replace(job, device="cpu")).snapshot


def _touchable(job: Job, weight: Weight, process: int) -> int:
    """Return the number of a process's rows that a batch may touch; by columns, columns in each shard."""
    return (
        weight.row_length * job.num_held(process) if weight.by_columns else job.stored_rows(weight, process)
    )


def _line(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes of the line on which a sample by popularity is drawn; see `Sampler`."""
    weight = job.layout.of_output(layer.name)
    return 8 * job.rows(weight, process) if isinstance(layer.sample, PopularitySample) else 0


def _attributes(job: Job, weight: Weight, process: int) -> int:
    """Return the bytes of the attributes of a weight's rows, of which each is assumed to have a few.

    They are stored by row and, for tiles of two sizes, by attribute.
    """
    if weight.describes is None:
        return 0
    rows = job.rows(job.layout.weights[weight.describes], process)
    return rows * ASSUMED_ATTRIBUTES * (12 + 2 * 20) + 8 * rows


def _activations(job: Job, process: int) -> int:
    """Return the bytes of batches in use and ahead, of hidden layers, and of the trunk's gradients.

    Batches count as stored, as inputs by shard, and as targets. With bfloat16, the trunk's weights count
    again as operands.
    """
    num = job.num_examples
    batches = num * (1 + BATCHES_AHEAD)
    ends = [(layer.field, layer.name) for layer in job.network.inputs]
    ends += [(layer.field, layer.name) for layer in job.network.outputs]
    copies = [*job.network.fields, *(field for field, _ in ends)]
    entries = sum(16 * round(batches * job.entries[field]) for field in copies if field in job.entries)
    entries += sum(
        8 * job.training.shards * (batches + 1) for layer in job.network.inputs if layer.field in job.entries
    )
    widths = {field: job.layout.units[name] for field, name in ends}
    own = {field: examples_of_shards(job) / max(num, 1) for field in fields_by_examples(job.layout)}
    dense = sum(
        round(4 * batches * width * own.get(field, 1.0))
        for field, width in widths.items()
        if field not in job.entries
    )
    share = examples_of_shards(job) / max(num, 1)
    hidden = sum(
        round(
            4
            * plan_of(layer).activations(job, layer)
            * (share if layer.name in job.layout.by_examples else 1)
        )
        for layer in job.network.hidden
    )
    hidden += sum(12 * num * job.layout.units[end] for end in ends_of(job.layout, job.layout.by_examples))
    in_trunk = [weight for weight in job.layout.weights.values() if weight.split or not weight.wide]
    bytes_of = [job.stored_rows(weight, process) * weight.row_bytes for weight in in_trunk]
    gradients = sum(size for size, weight in zip(bytes_of, in_trunk, strict=True) if weight.trained)
    operands = (
        sum(bytes_of) // (1 if job.device == "cpu" else 2) if job.training.precision == "bfloat16" else 0
    )
    return entries + dense + hidden + gradients + operands


def _phases(job: Job, process: int) -> Iterator[int]:
    """Yield the workspace of each phase of a step; only the largest counts, since each frees its memory."""
    inputs = [(layer, source, link.weight) for (layer, source), link in job.layout.links.items() if source]
    cut = [
        (layer, source, weight) for layer, source, name in inputs if (weight := job.layout.weights[name]).wide
    ]
    wide = [(layer, source, weight) for layer, source, weight in cut if not weight.split]
    yield from (_split(job, layer, source, weight, process) for layer, source, weight in cut if weight.split)
    rows = sum(_touched_rows(job, weight, source, process) for _, source, weight in wide)
    samples = sum(_sample(job, layer, process) for layer in job.network.outputs if layer.sample is not None)
    yield sum(_exact_sum(job, job.vectors(layer), weight.row_length, process) for layer, _, weight in wide)
    for (layer, source), link in job.layout.links.items():
        if (layer, source) in job.layout.windows:
            windows, filters = job.layout.windows[layer, source], job.layout.weights[link.weight].rows
            if layer in job.layout.by_examples:
                examples, threads = (
                    -(-job.num_examples // job.training.shards),
                    min(job.num_threads, job.num_held(process)),
                )
                yield threads * workspace(examples, windows, filters, 1, 1, job.device)
            else:
                yield workspace(
                    job.vectors(layer), windows, filters, job.training.shards, job.num_threads, job.device
                )
    yield _gradients_by_shard(job, process)
    yield sum(
        weight.numbers * (4 * (2 + job.num_held(process)) + 3 * 8)
        for weight in job.layout.weights.values()
        if weight.describes is not None
    )
    yield counting_bytes(job, process) + fitting_bytes(job, process)
    yield (
        samples + rows + sum(_kept(job, layer, process) for layer in job.network.outputs if waits(job, layer))
    )
    yield samples + sum(
        _kept(job, layer, process) + _tiles(job, layer, process) for layer in job.network.outputs
    )


def _exact_sum(job: Job, vectors: int, columns: int, process: int) -> int:
    """Return the bytes of a sum: a float32 term per held shard, and three 64-bit arrays."""
    return vectors * columns * (4 * job.num_held(process) + 3 * 8)


def examples_of_shards(job: Job) -> int:
    """Return the largest number of examples that a process computes in layers divided by examples."""
    return most_examples(job.num_examples, job.training.shards, job.num_processes)


def _gradients_by_shard(job: Job, process: int) -> int:
    """Return the bytes of the gradients of layers divided by examples: each shard's, twice, and their sum."""
    numbers = sum(job.layout.weights[name].numbers for name in weights_by_examples(job.layout))
    return 4 * numbers * job.num_held(process) + _exact_sum(job, 1, numbers, process)


def _split(job: Job, layer: str, source: str, weight: Weight, process: int) -> int:
    """Return the bytes of a split layer's product: all shards' units twice, or the sum to its source.

    A recurrent layer multiplies the states of one time, but has the gradients of all for their weight.
    """
    units, num = job.shards(weight).size(0), job.vectors(layer)
    at_once = job.num_examples if source == layer else num
    gathered = 4 * at_once * units * (2 * job.training.shards + job.num_held(process))
    summed = _exact_sum(job, at_once, weight.row_length, process)
    return max(gathered, 4 * num * weight.rows + summed)


def _touched_rows(job: Job, weight: Weight, source: str, process: int) -> int:
    """Return the bytes of a batch's entries by row, and of each thread's block of rows.

    A block counts its rows, gradients and state, with three temporary copies.
    """
    entries = round(job.num_examples * job.entries_of(source) * job.num_held(process) / job.training.shards)
    block = min(4 * BLOCK_NUMBERS[job.device], weight.row_bytes * weight.rows)
    threads = min(job.num_threads, job.num_held(process))
    return 32 * entries + threads * block * (3 + len(job.training.optimizer.state))


def _kept(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes that an output keeps between passes.

    These are logits or deltas, or both if its update waits; the native library keeps one of them.
    """
    if not keeps(job, layer, process) or not (
        waits(job, layer) or layer.activation.kind in ROW_WISE or layer.delta_norm is not None
    ):
        return 0
    num, units = job.vectors(layer.name), job.units_at_work(layer, process)
    if by_library(job, layer):
        return 4 * units * (-(-num // _LANES) * _LANES + _APART)
    return (2 if waits(job, layer) else 1) * 4 * num * units


def by_library(job: Job, layer: OutputLayer) -> bool:
    """Return whether the native library makes an output's passes over sparse targets."""
    kinds = layer.activation.kind, layer.loss.kind
    is_closed = kinds[0] == "softmax" and kinds[1].endswith("cross_entropy")
    is_plain = layer.others != "ignore" and layer.delta_boost is None and layer.delta_norm is None
    has_vectors = not (layer.weightless or job.layout.of_output(layer.name).by_columns)
    is_whole = job.device == "cpu" and is_plain and has_vectors and layer.sample is None
    return is_whole and (is_closed or kinds == ("sigmoid", "cross_entropy"))


def keeps(job: Job, layer: OutputLayer, process: int) -> bool:
    """Return whether a process keeps an output's logits between passes."""
    return are_kept(job.vectors(layer.name), job.units_at_work(layer, process), job.device, job.kept_bytes)


def _sample(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes of a sample: the rows and gradients of its units, and the units of batches ahead.

    The gradients count twice if other layers add to them.
    """
    weight, copies = job.layout.of_output(layer.name), 3 if job.layout.is_shared(layer.name) else 2
    return (copies * (weight.row_bytes + 4) + 12 * (1 + BATCHES_AHEAD)) * job.units_at_work(layer, process)


def _tiles(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes of the tiles in use, and of an output's gradient to the hidden vectors."""
    weight = job.layout.of_output(layer.name)
    num, columns = job.vectors(layer.name), weight.row_length
    if weight.by_columns:
        return _on_sparse_input(job, layer, weight, process)
    shard, half = job.shards(weight).size(0), job.training.precision == "bfloat16"
    units = min(
        tile_units(num, job.device), shard, -(-job.units_at_work(layer, process) // job.num_held(process))
    )
    is_grouped = job.device == "cpu" and waits(job, layer)  # the gradients of several tiles come together
    together = max(units, min(shard, GRADIENT_NUMBERS // max(columns, 1)) if is_grouped else 0)
    tile = 4 * (
        (5 if half else 4) * num * units
        + together * columns * ((5 if half else 4) + len(job.training.optimizer.state))
    )
    at_work = min(job.num_threads, job.num_held(process)) * tile
    if job.weights_in == "disk" and layer.activation.kind == "softmax" and by_library(job, layer):
        share = job.num_held(process) / job.training.shards  # copies of the targets' vectors
        at_work += 4 * columns * round(num * job.targets_of(layer) * share)
    return at_work + _exact_sum(job, job.vectors(layer.name), weight.incoming, process)


def _on_sparse_input(job: Job, layer: OutputLayer, weight: Weight, process: int) -> int:
    """Return the bytes of an output on a sparse input: logits of whole shards, and entries by feature."""
    units = job.shards(weight).size(0)
    entries = job.num_examples * job.entries_of(job.network.sources(layer)[0])
    block = min(4 * BLOCK_NUMBERS[job.device], 4 * units * weight.row_length) * (
        3 + len(job.training.optimizer.state)
    )
    at_work = min(job.num_threads, job.num_held(process)) * (
        4 * 4 * job.num_examples * units + 32 * round(entries) + block
    )
    return at_work + _exact_sum(job, job.vectors(layer.name), 0, process)


def waits(job: Job, layer: OutputLayer) -> bool:
    """Return whether an output is updated at the end of a step: its weight waits, or all do."""
    if layer.sample is not None:
        return False
    return job.layout.waits(layer.name) or job.training.gradient_norm_limit is not None
