"""The bytes that one process of a training needs at its peak."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from widenet.plan.drift import DRIFT_BLOCK_ROWS, drift_bytes, drift_columns
from widenet.plan.job import BATCHES_AHEAD, Job
from widenet.plan.layers import plan_of
from widenet.plan.layout import Weight
from widenet.plan.tiles import BLOCK_NUMBERS, are_kept, tile_units
from widenet.plan.unfolding import workspace
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import OutputLayer
from widenet.spec.samples import PopularitySample

PROGRAM_BYTES = {"cpu": 530_000_000, "cuda": 1_000_000_000}
"""Python, torch, what their libraries map and hold back; measured on a CPU, assumed for CUDA, whose
context lies in device memory.
"""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process.

    weights: of its shards, and of the trunk; how popular features are, where that counts. state: the
    optimizer's, and the step that moved each row last.
    activations: values and gradients of the layers for one batch. workspace: what a step needs besides.
    program: Python and torch.
    snapshot: the copy of weights and state from which checkpoints are written in the background; on CUDA it
    lies in the machine's memory, and none of the device's.
    """

    weights: int
    state: int
    activations: int
    workspace: int
    program: int
    snapshot: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.state + self.activations + self.workspace + self.program + self.snapshot


def memory(job: Job, process: int | None = None) -> Memory:
    """What a process needs of its device; None: the most that one needs.

    The last process holds the most rows. The first one, with the fewest, may need more where it alone has
    room to keep logits.
    """
    if process is None:
        return max(
            (memory(job, process) for process in (job.num_processes - 1, 0)), key=lambda needed: needed.total
        )
    held = {name: job.rows(weight, process) * weight.row_bytes for name, weight in job.layout.weights.items()}
    counted = sum(
        4 * job.layout.units[layer.name] for layer in job.network.inputs if layer.popularity_damping
    )
    counted += sum(_line(job, layer, process) for layer in job.network.outputs)
    trained = sum(size for name, size in held.items() if job.layout.weights[name].trained)
    optimizer = job.training.optimizer
    moved = sum(
        4 * _touchable(job, weight, process)
        for weight in job.layout.weights.values()
        if _remembers_moves(job, weight)
    )
    steps = (
        2 if job.cuda_graph else 1
    )  # a graph's memory is its own, and batches of other sizes make their steps beside it
    weights = sum(held.values()) + counted
    state = (
        trained * len(optimizer.state)
        + moved
        + sum(_drift_state(job, layer, process) for layer in job.network.outputs)
    )
    return Memory(
        weights=weights,
        state=state,
        activations=steps * _activations(job),
        workspace=steps * max(_phases(job, process)),
        program=PROGRAM_BYTES[job.device],
        snapshot=weights + state if job.in_background and job.device == "cpu" else 0,
    )


def snapshot_bytes(job: Job) -> int:
    """Bytes of the machine's memory that a process's snapshot takes, on whichever device it trains."""
    return memory(replace(job, device="cpu")).snapshot


def _remembers_moves(job: Job, weight: Weight) -> bool:
    """Whether rows of a weight note the step that moved them last."""
    return job.training.idles and weight.wide and not weight.by_tiles


def _touchable(job: Job, weight: Weight, process: int) -> int:
    """Rows of a process that a batch may touch; of a weight by columns these, in each shard."""
    return weight.row_length * job.num_held(process) if weight.by_columns else job.rows(weight, process)


def _line(job: Job, layer: OutputLayer, process: int) -> int:
    """Where each unit ends on the line on which a sample by popularity is drawn."""
    weight = job.layout.of_output(layer.name)
    return 8 * job.rows(weight, process) if isinstance(layer.sample, PopularitySample) else 0


def _drift_state(job: Job, layer: OutputLayer, process: int) -> int:
    """The step that moved each row of a drifting output last, and what turned them since."""
    if not job.drifts(layer):
        return 0
    weight = job.layout.weights[layer.name]
    return 4 * job.rows(weight, process) + drift_bytes(weight.rows, drift_columns(layer, job.layout))


def _activations(job: Job) -> int:
    """Batches at work and ahead, as stored and as inputs (by shards) and outputs take them; hidden layers;
    the trunk's gradients.

    In bfloat16 also the trunk's weights as operands.
    """
    num = job.num_examples
    batches = num * (1 + BATCHES_AHEAD)
    ends = [(layer.field, layer.name) for layer in job.network.inputs] + [
        (layer.field, layer.name) for layer in job.network.outputs
    ]
    copies = [*job.network.fields, *(field for field, _ in ends)]
    entries = sum(16 * round(batches * job.entries[field]) for field in copies if field in job.entries)
    entries += sum(
        8 * job.training.shards * (batches + 1) for layer in job.network.inputs if layer.field in job.entries
    )
    widths = {field: job.layout.units[name] for field, name in ends}
    dense = sum(4 * batches * width for field, width in widths.items() if field not in job.entries)
    hidden = sum(4 * plan_of(layer).activations(job, layer) for layer in job.network.hidden)
    trunk = sum(weight.rows * weight.row_bytes for weight in job.layout.weights.values() if not weight.wide)
    operands = trunk // (1 if job.device == "cpu" else 2) if job.training.precision == "bfloat16" else 0
    return entries + dense + hidden + trunk + operands


def _phases(job: Job, process: int) -> Iterator[int]:
    """The workspace of each phase of a step; only the largest counts, for each gives its room back."""
    inputs = [(layer, source, link.weight) for (layer, source), link in job.layout.links.items() if source]
    wide = [
        (layer, source, weight) for layer, source, name in inputs if (weight := job.layout.weights[name]).wide
    ]
    rows = sum(_touched_rows(job, weight, source, process) for _, source, weight in wide)
    samples = sum(_sample(job, layer, process) for layer in job.network.outputs if layer.sample is not None)
    yield sum(_exact_sum(job, layer, weight.row_length, process) for layer, _, weight in wide)
    for (layer, source), link in job.layout.links.items():
        if (layer, source) in job.layout.windows:
            windows, filters = job.layout.windows[layer, source], job.layout.weights[link.weight].rows
            yield workspace(
                job.vectors(layer), windows, filters, job.training.shards, job.num_threads, job.device
            )
    yield (
        samples + rows + sum(_kept(job, layer, process) for layer in job.network.outputs if waits(job, layer))
    )
    yield samples + sum(
        _kept(job, layer, process) + _tiles(job, layer, process) for layer in job.network.outputs
    )


def _exact_sum(job: Job, layer: str, columns: int, process: int) -> int:
    """A float32 term a shard held, and three times the 64-bit integers or doubles of one."""
    return job.vectors(layer) * columns * (4 * job.num_held(process) + 3 * 8)


def _touched_rows(job: Job, weight: Weight, source: str, process: int) -> int:
    """A batch's entries in order of rows; and at each thread a block of rows, their gradients and state,
    thrice as it is worked out.
    """
    entries = round(job.num_examples * job.entries_of(source) * job.num_held(process) / job.training.shards)
    block = min(4 * BLOCK_NUMBERS[job.device], weight.row_bytes * weight.rows)
    return 32 * entries + min(job.num_threads, job.num_held(process)) * block * (
        3 + len(job.training.optimizer.state)
    )


def _kept(job: Job, layer: OutputLayer, process: int) -> int:
    """What an output keeps between passes: logits or deltas and, where these turn into deltas that wait,
    both beside each other.
    """
    if not keeps(job, layer, process) or not (
        waits(job, layer) or layer.activation.kind in ROW_WISE or layer.delta_norm is not None
    ):
        return 0
    return (2 if waits(job, layer) else 1) * 4 * job.vectors(layer.name) * job.units_at_work(layer, process)


def keeps(job: Job, layer: OutputLayer, process: int) -> bool:
    """Whether a process keeps an output's logits between passes."""
    return are_kept(job.vectors(layer.name), job.units_at_work(layer, process), job.device, job.kept_bytes)


def _sample(job: Job, layer: OutputLayer, process: int) -> int:
    """The rows of a sample and the targets, and their gradients, twice where others add to them; and which
    these are, for batches ahead.
    """
    weight, copies = job.layout.of_output(layer.name), 3 if job.layout.is_shared(layer.name) else 2
    return (copies * (weight.row_bytes + 4) + 12 * (1 + BATCHES_AHEAD)) * job.units_at_work(layer, process)


def _tiles(job: Job, layer: OutputLayer, process: int) -> int:
    """Tiles at work, and an output's gradient to the hidden vectors."""
    if job.drifts(layer):
        return _drifting(job, layer, process)
    weight = job.layout.of_output(layer.name)
    num, columns = job.vectors(layer.name), weight.row_length
    if weight.by_columns:
        return _standing(job, layer, weight, process)
    shard, half = job.shards(weight).size(job.training.shards - 1), job.training.precision == "bfloat16"
    units = min(
        tile_units(num, job.device), shard, -(-job.units_at_work(layer, process) // job.num_held(process))
    )
    tile = 4 * (
        (5 if half else 4) * num * units
        + units * columns * ((5 if half else 4) + len(job.training.optimizer.state))
    )
    return min(job.num_threads, job.num_held(process)) * tile + _exact_sum(
        job, layer.name, weight.incoming, process
    )


def _standing(job: Job, layer: OutputLayer, weight: Weight, process: int) -> int:
    """Of an output on a sparse input: whole shards of logits at work, and the batch's entries in order of
    features.
    """
    units, entries = (
        job.shards(weight).size(job.training.shards - 1),
        job.num_examples * job.entries_of(job.network.sources(layer)[0]),
    )
    block = min(4 * BLOCK_NUMBERS[job.device], 4 * units * weight.row_length) * (
        3 + len(job.training.optimizer.state)
    )
    at_work = min(job.num_threads, job.num_held(process)) * (
        4 * 4 * job.num_examples * units + 32 * round(entries) + block
    )
    return at_work + _exact_sum(job, layer.name, 0, process)


def _drifting(job: Job, layer: OutputLayer, process: int) -> int:
    """What a drifting output needs: six float64 numbers beside each hidden unit, the rows of a batch's
    targets, and what turns all rows.
    """
    width, columns = job.layout.units[layer.name], drift_columns(layer, job.layout)
    examples = job.num_examples * columns * 6 * 8 + 2 * _exact_sum(job, layer.name, columns, process)
    touched = (
        min(job.num_examples * job.entries[layer.field], width)
        * job.num_held(process)
        / job.training.shards
        * columns
        * 4
        * 3
    )
    at_work = min(job.num_threads, job.num_held(process)) * (
        3 * DRIFT_BLOCK_ROWS * columns * 4 + 3 * 8 * (width // job.training.shards)
    )
    return round(examples + touched) + max(drift_bytes(width, columns), at_work) + 5 * 8 * columns**2


def waits(job: Job, layer: OutputLayer) -> bool:
    """Whether an output's tiles are updated at the end of a step: others use its weight, or all of them
    wait.
    """
    if layer.sample is not None:
        return False
    return job.layout.is_shared(layer.name) or job.training.waits
