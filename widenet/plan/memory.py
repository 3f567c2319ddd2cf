"""Tells the bytes that one process of a training needs: weights and state exactly, the rest by a bound.

The bound follows from the batch, widths and tiles alone, whatever the layers compute. Its factors are of
trainings whose peak was measured: `python -m benchmarks memory`.
"""

from dataclasses import asdict, dataclass
from math import prod

from widenet.plan.descriptions import ASSUMED_ATTRIBUTES
from widenet.plan.job import BATCHES_AHEAD, Job
from widenet.plan.picture_layers import fields_by_examples, weights_by_examples
from widenet.plan.streaming import is_elsewhere, remembers_moves, window_bytes
from widenet.plan.tiles import COUNTED_PAIRS, GRADIENT_NUMBERS, UNFOLDED_NUMBERS, tile_units
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
        state += len(job.training.optimizer.state) * num_bytes * weight.trained
        if remembers_moves(job, weight) and (is_here or job.weights_in == "disk"):
            by_column = weight.row_length * job.num_held(process)
            state += 4 * (by_column if weight.by_columns else job.stored_rows(weight, process))
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
