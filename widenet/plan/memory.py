"""Tells what one process of a training needs: bytes of memory, and the work of a step.

Weights and state are exact. The bound of the rest follows from the batch, widths and tiles alone, whatever
the layers compute; its factors are of trainings whose peak was measured: `python -m benchmarks memory`.
Of the work, the products with the weights count and what crosses shards, whatever an implementation saves or
adds.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod

from widenet.plan.descriptions import ASSUMED_ATTRIBUTES
from widenet.plan.layout import BATCHES_AHEAD, Job
from widenet.plan.picture_layers import ends_of, fields_by_examples, weights_by_examples
from widenet.plan.streaming import is_elsewhere, num_tensors, number_bytes, touched_bytes, window_bytes
from widenet.plan.tiles import (
    COUNTED_PAIRS,
    FILLED_POSITIONS,
    GRADIENT_NUMBERS,
    UNFOLDED_NUMBERS,
    tile_units,
)
from widenet.plan.weights import matrices
from widenet.spec.layers import InputLayer, OutputLayer, Trunk
from widenet.spec.losses import PopularitySample
from widenet.spec.sequential import AttentionLayer, RecurrentLayer

PROGRAM_BYTES = {"cpu": 390_000_000, "cuda": 1_000_000_000}
"""Python, torch and their libraries: measured by `python -m benchmarks memory`, assumed for a CUDA device."""

_HELD_BACK_BYTES = 2**26
"""What the C library's allocator holds back at most; in small trainings a quarter of weights and state."""

WORDS = {
    "state": "optimizer state",
    "program": "Python and torch",
    "window": "weights elsewhere, in part",
}
"""The attributes of `Memory` in words; the others are words themselves."""

_ENTRY_BYTES = 16
"""Of a stored entry of a batch, for each layer that reads or wants it."""
_NEIGHBOUR_BYTES, _ATTRIBUTE_BYTES, _PAIR_BYTES = 12, 52, 96
"""Of a neighbour of a unit, of an attribute of an item, and of a pair while neighbours are counted."""
_SPREAD = 16
"""Largest mean square of the entries of an example, as a multiple of the square of their mean."""
_EXACT_BYTES = 3 * 8
"""Of a number in an exact sum, besides the terms of the shards."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process.

    Attributes:
        weights: Weights of its shards and of the trunk, and what belongs to their features.
        state: The optimizer's state, and the last step of each row.
        activations: Batches, values and gradients of the layers, and gradients of the trunk.
        workspace: Further memory of a step, and what the allocator holds back.
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
        return sum(asdict(self).values())


def memory(job: Job, process: int | None = None) -> Memory:
    """Return the memory that a process needs of its device; for None, the largest need of all processes.

    The first process holds the most rows. The last one has the fewest, but may need more if it alone has room
    to keep logits.
    """
    if process is None:
        return max((memory(job, each) for each in (0, job.num_processes - 1)), key=lambda each: each.total)
    weights, state = _tables(job, process), 0
    for weight in job.layout.weights.values():
        is_here = not is_elsewhere(job, weight)
        num_bytes = is_here * job.stored_rows(weight, process) * weight.row_bytes
        weights += num_bytes
        state += (num_tensors(job, weight) - 1) * num_bytes
        if is_here or job.weights_in == "disk":
            by_column = weight.row_length * job.num_held(process)
            rows = by_column if weight.by_columns else job.stored_rows(weight, process)
            state += number_bytes(job, weight) * rows
    held_back = min(_HELD_BACK_BYTES, (weights + state) // 4) if job.device == "cpu" else 0
    return Memory(
        weights=weights,
        state=state,
        activations=_activations(job, process),
        workspace=max(_workspace(job, process), _counting(job, process)) + held_back,
        program=PROGRAM_BYTES[job.device],
        snapshot=weights + state if job.in_background and job.device == "cpu" else 0,
        window=window_bytes(job, process),
    )


def _tables(job: Job, process: int) -> int:
    """Return the bytes of popularity, lines on which samples are drawn, neighbours and attributes."""
    layout = job.layout
    total = sum(4 * layout.units[layer.name] for layer in job.network.inputs if layer.popularity_damping)
    for layer in job.network.outputs:
        neighbours = 0 if layer.neighbourhood is None else layer.neighbourhood.neighbours
        draws = isinstance(layer.sample, PopularitySample) and job.device == "cpu"  # the host draws samples
        num_bytes = _NEIGHBOUR_BYTES * neighbours + 8 * draws
        total += num_bytes * job.rows(layout.of_output(layer.name), process)
    described = [weight.describes for weight in layout.weights.values() if weight.describes is not None]
    rows = sum(job.rows(layout.weights[name], process) for name in described)
    return total + (_ATTRIBUTE_BYTES * ASSUMED_ATTRIBUTES + 8) * rows


def _counting(job: Job, process: int) -> int:
    """Return the bytes of the pairs that a process's threads count before the first step, for neighbours."""
    counted = [layer.field for layer in job.network.outputs if layer.neighbourhood is not None]
    of_one = max((_SPREAD * (job.entries[field] + 1) ** 2 for field in counted), default=0.0)
    pairs = min(COUNTED_PAIRS, (job.all_examples or COUNTED_PAIRS) * of_one)
    return _PAIR_BYTES * int(pairs) * min(job.num_threads, job.num_held(process))


def _activations(job: Job, process: int) -> int:
    """Bound batches in use and ahead, hidden layers, and the trunk's gradients and operands."""
    num, layout, entries, total = job.num_examples, job.layout, job.entries, 0.0
    ends: list[InputLayer | OutputLayer] = [*job.network.inputs, *job.network.outputs]
    divided = fields_by_examples(layout)
    for field in job.network.fields:
        read = job.own_vectors(layout.by_examples[0]) if field in divided else num
        copies = 1 + sum(layer.field == field for layer in ends)
        dense, sparse = 4 * read * layout.fields[field].width, _ENTRY_BYTES * num * copies
        total += (1 + BATCHES_AHEAD) * (sparse * entries[field] if field in entries else dense)
    for layer in job.network.hidden:
        total += 4 * job.own_vectors(layer.name) * _kept_numbers(job, layer)
    for weight in layout.weights.values():
        copies = weight.trained + (job.training.precision == "bfloat16")
        is_here = weight.split or not weight.wide
        total += is_here * job.stored_rows(weight, process) * weight.row_bytes * copies
    return round(total)


def _kept_numbers(job: Job, layer: Trunk) -> int:
    """Return how many float32 numbers a step keeps of one of a hidden layer's vectors.

    Four for each unit: its sum, activation and gradient, and what dropout kept; eight over pictures that one
    process has whole. Recurrent layers have twelve, and twelve for each sum. Attention has 20, and two for
    each head and earlier position.
    """
    units = job.layout.units[layer.name]
    if isinstance(layer, RecurrentLayer):
        return 12 * (units + layer.sums)
    if isinstance(layer, AttentionLayer):
        return 20 * units + 2 * layer.heads * job.layout.newest(layer.name)
    is_whole = len(job.layout.shapes[layer.name]) > 1 and layer.name not in job.layout.by_examples
    return (8 if is_whole else 4) * units


def _workspace(job: Job, process: int) -> int:
    """Bound what a step's passes need: tiles, kept logits, samples, sums over shards, and filters."""
    num_held, layout = job.num_held(process), job.layout
    threads = min(job.num_threads, num_held)
    total = sum(_of_output(job, layer, process, threads) for layer in job.network.outputs)
    sums = unfolded = 0
    for (layer, source), link in layout.links.items():
        weight, windows = layout.weights[link.weight], layout.windows.get((layer, source))
        if windows is not None:
            numbers = max(UNFOLDED_NUMBERS[job.device], windows.inputs * prod(windows.positions))
            own = 2 * threads * numbers + (job.training.shards + 1) * weight.numbers
            unfolded = max(unfolded, 4 * own)
        elif weight.wide:
            columns, gathered = (
                weight.row_length if source else weight.incoming,
                12 * weight.rows * weight.split,
            )
            own = job.vectors(layer) * (columns * (4 * num_held + _EXACT_BYTES) + gathered)
            sums = max(sums, own)
    by_examples = sum(layout.weights[name].numbers for name in weights_by_examples(layout))
    return total + sums + unfolded + 12 * num_held * by_examples


def _of_output(job: Job, layer: OutputLayer, process: int, threads: int) -> int:
    """Bound the tiles of an output, the logits that it keeps, and its sample."""
    weight, num = job.layout.of_output(layer.name), job.vectors(layer.name)
    shard, chosen = job.shards(weight).size(0), job.units_at_work(layer, process)
    units = shard if weight.by_columns else min(tile_units(num, job.device), shard, chosen)
    gradient = max(units * weight.incoming, GRADIENT_NUMBERS)
    total = 4 * threads * (4 * num * units + gradient * (4 + len(job.training.optimizer.state)))
    sampled = 0 if layer.sample is None else 3 * (weight.row_bytes + 4 * _ENTRY_BYTES) * chosen
    if layer.is_row_wise and not layer.is_closed and layer.sample is None:  # over all units at once
        return total + 30 * num * job.layout.units[layer.name]
    keeps = job.goes_twice(layer) and job.keeps(layer, process)
    return total + sampled + keeps * 4 * num * chosen


@dataclass(frozen=True)
class Work:
    """Work of one process in one step.

    Attributes:
        operations: Operations of its matrix products and sparse sums; a multiplication and an addition count
            2.
        sent_bytes: Bytes sent to the N - 1 others by the ring algorithm: 2 (N - 1) / N of sums, and N - 1
            times what is gathered. It receives as many. In a gather, all processes send as much as the one
            with the most shards.
        read_bytes: Bytes that it reads from weights and state on a disk.
        written_bytes: Bytes that it writes there.
    """

    operations: int
    sent_bytes: int
    read_bytes: int = 0
    written_bytes: int = 0


def work(job: Job, process: int = 0) -> Work:
    """Return the work of a process; the first one has the most shards and rows."""
    others = job.num_processes - 1
    sent = sum(summed_bytes(job)) * 2 * others / job.num_processes + sum(gathered_bytes(job)) * others
    return Work(_operations(job, process), round(sent), *streamed_bytes(job, process))


def streamed_bytes(job: Job, process: int) -> tuple[int, int]:
    """Return the bytes that a process reads in a step, and those that it writes.

    Rows that a batch touches count as pages of a disk that memory does not hold yet.
    """
    read = written = 0
    for name, weight in job.layout.weights.items():
        rows, touched = job.rows(weight, process), touched_bytes(job, name, process)
        whole = rows * weight.row_bytes
        with_state = whole * num_tensors(job, weight)
        swept = [layer for layer in job.network.outputs if layer.sample is None]
        swept = [layer for layer in swept if job.layout.of_output(layer.name) is weight]
        if not is_elsewhere(job, weight):
            continue
        if weight.norm_limit is not None and weight.rows_are_features:
            read += whole
        if job.layout.is_described(name):  # the change of the vectors of attributes moves all rows
            read, written = read + whole, written + whole
        if swept:
            # Rows of inputs come from the host; a disk's file holds them in memory's own pages.
            touched *= job.weights_in == "host"
            read += sum(map(job.goes_twice, swept)) * whole + with_state + touched
            written += with_state * weight.trained
        else:
            read, written = read + touched, written + touched * weight.trained
    return read, written


def _operations(job: Job, process: int) -> int:
    """Return the operations of the products with weights, forward and backward."""
    layout, total = job.layout, 0.0
    share = job.num_held(process) / job.training.shards
    of_hidden = {key: link for key, link in layout.links.items() if key[1]}
    for (layer, source), link in of_hidden.items():
        weight, windows = layout.weights[link.weight], layout.windows.get((layer, source))
        if windows is not None:
            numbers: float = job.own_vectors(layer) * layout.units[layer] * windows.inputs
        elif weight.rows_are_features:
            numbers = job.num_examples * job.entries_of(source) * share * weight.row_length
        else:
            numbers = job.vectors(layer) * job.rows(weight, process) * weight.row_length
        is_input = isinstance(job.network.layer(source), InputLayer)
        total += (2 - is_input + weight.trained) * numbers
    for output in job.network.outputs:
        weight, num = layout.of_output(output.name), job.vectors(output.name)
        products = 1 + weight.trained + (job.goes_twice(output) and not job.keeps(output, process))
        if weight.by_columns:
            entries = job.entries_of(job.network.sources(output)[0])
            total += products * num * entries * job.rows(weight, process)
        else:
            total += (products + 1) * num * job.units_at_work(output, process) * weight.row_length
    for hidden in job.network.hidden:
        if isinstance(hidden, AttentionLayer):
            sizes = matrices(hidden, layout.units[hidden.name])
            total += 3 * job.vectors(hidden.name) * sum(inputs * outputs for _, inputs, outputs in sizes)
            length = -(-job.entries_of(layout.along[hidden.name]) // FILLED_POSITIONS) * FILLED_POSITIONS
            pairs = 3 if hidden.positions == "relative" else 2  # products of positions with each other
            total += 3 * pairs * job.num_examples * length**2 * layout.units[hidden.name]
    return round(2 * total)


def summed_bytes(job: Job) -> Iterator[int]:
    """Yield the bytes of each sum over the processes: 64-bit integers, and the peak of every row."""
    for (layer, source), link in job.layout.links.items():
        weight = job.layout.weights[link.weight]
        is_last = weight.split and isinstance(job.network.layer(source), InputLayer)
        if weight.wide and not is_last:
            yield 8 * job.vectors(layer) * (1 + (weight.row_length if source else weight.incoming))
    yield 8 * sum(job.layout.weights[name].numbers for name in weights_by_examples(job.layout))


def gathered_bytes(job: Job) -> Iterator[int]:
    """Yield the bytes that a process gives to every other: statistics, logits, and parts of layers."""
    for end in ends_of(job.layout):
        yield 4 * job.layout.units[end] * job.own_vectors(end)
    for output in job.network.outputs:
        if output.is_row_wise:  # statistics, or the logits themselves
            units = job.shards(job.layout.of_output(output.name)).size(0)
            yield (24 if output.is_closed else 4 * units) * job.vectors(output.name) * job.num_held(0)
    for (layer, source), link in job.layout.links.items():
        weight = job.layout.weights[link.weight]
        if source and weight.split:
            yield 4 * job.vectors(layer) * job.shards(weight).size(0) * job.num_held(0)
