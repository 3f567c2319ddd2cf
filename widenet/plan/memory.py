"""Tells what one process of a training needs, bytes of memory and of a step's traffic, and whether it fits.

Weights and state are exact. The bound of the rest follows from the batch, widths and tiles alone, whatever
the layers compute; its factors are of trainings whose peak was measured: `python -m benchmarks memory`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal

from widenet.errors import CapacityError
from widenet.plan import tiles
from widenet.plan.layout import BATCHES_AHEAD, Job, Weight
from widenet.plan.numbers import amount
from widenet.plan.weights import ends_of, fields_by_examples, weights_by_examples
from widenet.spec.layers import AttentionLayer, InputLayer, OutputLayer, RecurrentLayer
from widenet.spec.losses import PopularitySample
from widenet.spec.training import MOST_SHARDS

PROGRAM_BYTES = {"cpu": 390_000_000, "cuda": 1_000_000_000}
"""Python, torch and their libraries: measured by `python -m benchmarks memory`, assumed for a CUDA device."""

WORDS = {
    "state": "optimizer state",
    "program": "Python and torch",
    "window": "weights elsewhere, in part",
}
"""The attributes of `Memory` in words; the others are words themselves."""

NAMES = {"host": "Weights in the host's memory", "disk": "Weights on a disk"}
"""The beginnings of sentences about weights that lie elsewhere than on the device."""

_HELD_BACK_BYTES = 2**26
"""What the C library's allocator holds back at most; in small trainings as much as weights and state."""
_ENTRY_BYTES = 16
"""Of a stored entry of a batch, for each layer that reads or wants it."""
_NEIGHBOUR_BYTES, _DESCRIBED_BYTES, _PAIR_BYTES = 12, 268, 96
"""Of a neighbour of a unit, of an item with five attributes, and of a pair while neighbours are counted."""
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
    weights, state, _ = _stored_bytes(job, process)
    is_cpu = job.device == "cpu"
    return Memory(
        weights=weights,
        state=state,
        activations=_activations(job, process),
        workspace=_workspace(job, process) + is_cpu * min(_HELD_BACK_BYTES, weights + state),
        program=PROGRAM_BYTES[job.device],
        snapshot=(weights + state) * (job.in_background and is_cpu),
        window=window_bytes(job, process),
    )


def elsewhere_bytes(job: Job, process: int) -> int:
    """Return the bytes of a process's weights and state on a disk or in the host's memory."""
    return _stored_bytes(job, process)[2]


def checkpoint_bytes(job: Job) -> int:
    """Return the bytes of a checkpoint on disk: weights and state of a single process."""
    whole = memory(replace(job, num_processes=1, weights_in="device", device="cpu"))
    return whole.weights + whole.state


def is_elsewhere(job: Job, weight: Weight) -> bool:
    """Return whether a weight of a job lies on a disk or in the memory of a CUDA device's host."""
    return job.weights_in != "device" and weight.has_vectors


def _row_bytes(job: Job, weight: Weight) -> tuple[int, int]:
    """Return the bytes of a row with state of the same shape, and of the only number that it may have beside.

    This is the state under "per_row", or the last step of a row that idles.
    """
    optimizer = job.training.optimizer
    has_number = getattr(optimizer, "per_row", False) and weight.has_vectors
    remembers = job.training.idles and weight.wide and not weight.by_tiles
    num_tensors = 1 + weight.trained * (0 if has_number else len(optimizer.state))
    return weight.row_bytes * num_tensors, 4 * (weight.trained and (has_number or remembers))


def _stored_bytes(job: Job, process: int) -> tuple[int, int, int]:
    """Return the bytes of a process's weights and of their state on the device, and of both elsewhere.

    Weights have popularity, lines on which samples are drawn, neighbours and attributes beside them. A disk
    never has the single numbers of rows.
    """
    layout, state, elsewhere = job.layout, 0, 0
    weights = sum(4 * layout.units[layer.name] for layer in job.network.inputs if layer.popularity_damping)
    for layer in job.network.outputs:
        neighbours = 0 if layer.neighbourhood is None else layer.neighbourhood.neighbours
        draws = isinstance(layer.sample, PopularitySample) and job.device == "cpu"  # the host draws samples
        num_bytes = _NEIGHBOUR_BYTES * neighbours + 8 * draws
        weights += num_bytes * job.rows(layout.of_output(layer.name), process)
    for weight in layout.weights.values():
        rows, (row_bytes, number_bytes) = job.stored_rows(weight, process), _row_bytes(job, weight)
        numbers = number_bytes * (weight.row_length * job.num_held(process) if weight.by_columns else rows)
        if weight.described_by:
            weights += _DESCRIBED_BYTES * job.rows(weight, process)
        if not is_elsewhere(job, weight):
            weights += rows * weight.row_bytes
            state += rows * (row_bytes - weight.row_bytes) + numbers
        elif job.weights_in == "disk":
            elsewhere += rows * row_bytes
            state += numbers
        else:
            elsewhere += rows * row_bytes + numbers
    return weights, state, elsewhere


def _activations(job: Job, process: int) -> int:
    """Bound batches in use and ahead, hidden layers, and the trunk's gradients and operands.

    A step keeps four numbers for each unit of a hidden layer: its sum, activation and gradient, and what
    dropout kept; eight over pictures that one process has whole. Recurrent layers have twelve, and twelve for
    each sum. Attention has 20, and two for each head and earlier position.
    """
    layout, total, divided = job.layout, 0.0, fields_by_examples(job.layout)
    ends: list[InputLayer | OutputLayer] = [*job.network.inputs, *job.network.outputs]
    for field in job.network.fields:
        num = job.vectors(layout.by_examples[0]) if field in divided else job.num_examples
        copies = 1 + sum(layer.field == field for layer in ends)
        dense, sparse = 4 * layout.fields[field].width, _ENTRY_BYTES * copies
        total += (1 + BATCHES_AHEAD) * num * (sparse * job.entries[field] if field in job.entries else dense)
    for layer in job.network.hidden:
        units = layout.units[layer.name]
        is_whole = len(layout.shapes[layer.name]) > 1 and layer.name not in layout.by_examples
        kept = (8 if is_whole else 4) * units
        if isinstance(layer, RecurrentLayer):
            kept = 12 * (units + layer.sums)
        elif isinstance(layer, AttentionLayer):
            kept = 20 * units + 2 * layer.heads * layout.newest(layer.name)
        total += 4 * job.vectors(layer.name) * kept
    for weight in layout.weights.values():
        copies = weight.trained + (job.training.precision == "bfloat16")
        is_here = weight.split or not weight.wide
        total += is_here * job.stored_rows(weight, process) * weight.row_bytes * copies
    return round(total)


def _workspace(job: Job, process: int) -> int:
    """Bound what a step's passes need: tiles, kept logits, samples, sums over shards, and filters.

    Or the pairs that a process's threads count before the first step, for neighbours.
    """
    num_held, layout, at_once = job.num_held(process), job.layout, 0
    threads = min(job.num_threads, num_held)
    for (layer, source), link in layout.links.items():
        weight, windows = layout.weights[link.weight], layout.windows.get((layer, source))
        if windows is not None:
            numbers = max(tiles.UNFOLDED_NUMBERS[job.device], windows.inputs * prod(windows.positions))
            at_once = max(at_once, 4 * (2 * threads * numbers + (job.training.shards + 1) * weight.numbers))
        elif weight.wide:
            summed = weight.incoming * (4 * num_held + _EXACT_BYTES) + 12 * weight.rows * weight.split
            at_once = max(at_once, job.vectors(layer) * summed)
    by_examples = sum(layout.weights[name].numbers for name in weights_by_examples(layout))
    outputs = sum(_of_output(job, layer, process, threads) for layer in job.network.outputs)
    counted = [layer.field for layer in job.network.outputs if layer.neighbourhood is not None]
    of_one = max((_SPREAD * (job.entries[field] + 1) ** 2 for field in counted), default=0.0)
    pairs = int(min(tiles.COUNTED_PAIRS, (job.all_examples or tiles.COUNTED_PAIRS) * of_one))
    return max(outputs + at_once + 12 * num_held * by_examples, _PAIR_BYTES * pairs * threads)


def _of_output(job: Job, layer: OutputLayer, process: int, threads: int) -> int:
    """Bound the tiles of an output, the logits that it keeps, and its sample."""
    weight, num = job.layout.of_output(layer.name), job.vectors(layer.name)
    chosen = job.units_at_work(layer, process)
    if job.takes_all(layer):
        return 30 * num * job.layout.units[layer.name]
    shard = job.layout.shards(weight.rows).size(0)
    kept = tiles.bytes_kept(num, chosen, job.device, job.is_half)
    kept *= job.goes_twice(layer) and job.keeps(layer, process)
    if weight.by_columns:  # a tile is a whole shard
        return 100 * threads * num * shard + kept
    units = min(tiles.tile_units(num, job.device), shard, chosen)
    gradient = max(units * weight.incoming, tiles.GRADIENT_NUMBERS) * (4 + len(job.training.optimizer.state))
    sampled = 0 if layer.sample is None else 3 * (weight.row_bytes + 4 * _ENTRY_BYTES) * chosen
    together = min(job.num_held(process), tiles.SHARDS_AT_ONCE) if job.device == "cuda" else threads
    targets = 0 if job.device == "cpu" else round(job.targets_of(layer) / job.training.shards)
    vectors = 3 * num * targets * weight.incoming  # of the targets of a shard
    return 4 * (together * (4 * num * units + gradient) + vectors) + sampled + kept


def window_bytes(job: Job, process: int) -> int:
    """Return the bytes that the device's memory holds of the weights and state that lie elsewhere.

    These are the rows that a batch touches, and what a pass holds of each tensor: a tile or a block, and the
    requests around it that are read and written on a disk.
    """
    most = touched = 0
    for name, weight in job.layout.weights.items():
        if is_elsewhere(job, weight):
            limited = 0 if weight.norm_limit is None else tiles.LIMITED_ROWS
            searched = tiles.predicted_units(weight.row_length, job.device)
            units = max(limited, searched, tiles.tile_units(job.num_examples, job.device))
            shard_bytes = job.layout.shards(weight.rows).size(0) * weight.row_bytes
            at_once = min(max(tiles.BLOCK_BYTES, units * weight.row_bytes), shard_bytes)
            num_tensors = _row_bytes(job, weight)[0] // weight.row_bytes if weight.by_tiles else 1
            most = max(most, num_tensors * (in_memory(at_once) if job.weights_in == "disk" else at_once))
            touched += _touched_bytes(job, name, process)
    threads = min(job.num_threads, job.num_held(process))
    return min(elsewhere_bytes(job, process), threads * most + touched)


def in_memory(at_work: int) -> int:
    """Return the bytes of the requests of a tensor in memory, of which so many bytes or one request work."""
    requests = -(-max(at_work, tiles.REQUEST_BYTES) // tiles.REQUEST_BYTES) + 1
    return (requests + tiles.NUM_AHEAD + tiles.NUM_BEHIND) * tiles.REQUEST_BYTES


def _touched_bytes(job: Job, name: str, process: int, in_pages: bool = False) -> int:
    """Return the bytes of copies of the rows that a batch touches, with their state; or of their pages."""
    weight, layout = job.layout.weights[name], job.layout
    share, links = job.num_held(process) / job.training.shards, layout.links.items()
    read = [source for (_, source), link in links if link.weight == name and source in layout.features]
    touched = sum(job.num_examples * job.entries_of(source) * share for source in read)
    sampled_rows = sum(job.units_at_work(layer, process) for layer in layout.outputs_of(name) if layer.sample)
    rows = min(round(touched + sampled_rows), job.rows(weight, process))
    row_bytes, number_bytes = _row_bytes(job, weight)
    if not in_pages:
        return rows * ((weight.row_bytes if weight.by_tiles else row_bytes) + number_bytes)
    pages = -(-weight.row_bytes // tiles.PAGE_BYTES) * tiles.PAGE_BYTES * (row_bytes // weight.row_bytes)
    return min(rows * pages, job.rows(weight, process) * row_bytes)


@dataclass(frozen=True)
class Work:
    """What one process moves in one step.

    Attributes:
        sent_bytes: Bytes sent to the N - 1 others by the ring algorithm: 2 (N - 1) / N of sums, and N - 1
            times what is gathered. It receives as many. In a gather, all processes send as much as the one
            with the most shards.
        read_bytes: Bytes that it reads from weights and state on a disk.
        written_bytes: Bytes that it writes there.
    """

    sent_bytes: int
    read_bytes: int = 0
    written_bytes: int = 0


def work(job: Job, process: int = 0) -> Work:
    """Return what a process moves; the first one has the most shards and rows."""
    others = job.num_processes - 1
    times = {"sum": 2 * others / job.num_processes, "gather": others}
    sent = sum(times[kind] * num_bytes for kind, num_bytes in exchanges(job))
    return Work(round(sent), *streamed_bytes(job, process))


def streamed_bytes(job: Job, process: int) -> tuple[int, int]:
    """Return the bytes that a process reads in a step, and those that it writes.

    Rows that a batch touches count as pages of a disk that memory does not hold yet.
    """
    read = written = 0
    for name, weight in job.layout.weights.items():
        if not is_elsewhere(job, weight):
            continue
        rows = job.rows(weight, process)
        touched = _touched_bytes(job, name, process, in_pages=job.weights_in == "disk")
        whole, with_state = rows * weight.row_bytes, rows * _row_bytes(job, weight)[0]
        users = [layer for layer in job.layout.outputs_of(name) if layer.sample is None]
        is_limited = weight.norm_limit is not None and weight.rows_are_features
        is_described = bool(weight.described_by)  # the change of the vectors of attributes moves all rows
        read += whole * (is_limited + is_described + sum(map(job.goes_twice, users)))
        if job.device == "cuda":  # the targets' rows, for their logits and for the gradient to what comes in
            targets = sum(job.targets_of(user) for user in users if user.is_closed)
            read += 2 * job.num_examples * round(targets * rows / weight.rows) * weight.row_bytes
        # Rows of inputs come from the host; a disk's file holds them in memory's own pages.
        read += with_state + touched * (job.weights_in == "host") if users else touched
        written += whole * is_described + (with_state if users else touched) * weight.trained
    return read, written


def exchanges(job: Job) -> Iterator[tuple[Literal["sum", "gather"], int]]:
    """Yield the kind and the bytes of everything that crosses processes in a step.

    Sums are of 64-bit integers, with the peak of every row. Statistics, logits, and parts of layers are
    gathered: as many bytes as a process gives to every other.
    """
    layout = job.layout
    for (layer, source), link in layout.links.items():
        weight, vectors = layout.weights[link.weight], job.vectors(layer)
        is_last = weight.split and isinstance(job.network.layer(source), InputLayer)
        if weight.wide and not is_last:
            yield "sum", 8 * vectors * (1 + weight.incoming)
        if source and weight.split:
            yield "gather", 4 * vectors * layout.shards(weight.rows).size(0) * job.num_held(0)
    yield "sum", 8 * sum(layout.weights[name].numbers for name in weights_by_examples(layout))
    for end in ends_of(layout):
        yield "gather", 4 * layout.units[end] * job.vectors(end)
    for output in job.network.outputs:
        if output.is_closed or job.takes_all(output):  # statistics, or the logits themselves
            units = layout.shards(layout.units[output.name]).size(0)
            num_bytes = 4 * units if job.takes_all(output) else 24
            yield "gather", num_bytes * job.vectors(output.name) * job.num_held(0)


def with_room(job: Job, device_bytes: int) -> Job:
    """Return the job with a limit on kept logits that fits its memory; the bits do not change.

    The outputs share half of the remaining memory equally, because logits and deltas may be kept together. On
    a CPU the limit changes only for weights on a disk, which are there because memory is short.
    """
    if job.device == "cpu" and job.weights_in == "device":
        return job
    left = max(device_bytes - memory(replace(job, kept_bytes=0)).total, 0) // (2 * len(job.network.outputs))
    return replace(job, kept_bytes=left if job.device == "cuda" else min(left, tiles.KEPT_BYTES["cpu"]))


def with_place(job: Job, device_bytes: int) -> Job:
    """Return the job with its wide weights on the device if it fits, else elsewhere if it fits then.

    That is on a disk for a CPU, and in the host's memory for CUDA. It fits if it does so without snapshots.
    """
    for each in (job, replace(job, weights_in="host" if job.device == "cuda" else "disk")):
        if memory(with_room(replace(each, has_snapshots=False), device_bytes)).total <= device_bytes:
            return each
    return job


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
        layout = replace(job.layout, training=job.training.model_copy(update={"shards": num_shards}))
        # Numbers of processes that reduce the largest number of shards in a process.
        for num_processes in sorted({-(-num_shards // most) for most in range(1, num_shards + 1)}):
            candidate = with_room(replace(job, layout=layout, num_processes=num_processes), device_bytes)
            if memory(candidate).total <= device_bytes:
                return candidate
    return None


def check_fits(job: Job, device_bytes: int, num_local: int = 1, host_bytes: int | None = None) -> None:
    """Raise CapacityError if a process needs more than its device has, or its machine.

    Args:
        job: The job.
        device_bytes: Memory of a device; on a CPU, the share of a process in its machine's.
        num_local: Number of its processes on this machine.
        host_bytes: Free memory of the machine, for wide weights that lie in the host's memory; None: enough.
    """
    needed, held = memory(with_room(job, device_bytes)).total, elsewhere_bytes(job, 0) * num_local
    machine = "memory of this machine"
    rule = f"must have {amount(needed)} for each process; it has {amount(device_bytes)}"
    place = "memory of a device" if job.device == "cuda" else machine
    CapacityError.require(needed <= device_bytes, rule, place=place)
    if job.weights_in == "host" and host_bytes is not None:
        rule = f"must have {amount(held)} for wide weights; it has {amount(host_bytes)} left"
        CapacityError.require(held <= host_bytes, rule, place=machine)


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
    needed, weights = memory(job), job.layout.weights
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
            for name, weight in weights.items()
        },
        "memory_bytes": {**asdict(needed), "total": needed.total},
        "work": asdict(work(job)),
        "checkpoint_bytes": checkpoint_bytes(job),
        "weights_in": job.weights_in,
        "scratch_bytes": elsewhere_bytes(job, 0),
        "processes": [
            {
                "process": process,
                "shards": [job.held(process).start, job.held(process).stop],
                "rows": {
                    name: job.rows(weight, process)
                    for name, weight in weights.items()
                    if weight.wide and weight.columns
                },
                "memory_bytes": memory(job, process).total,
            }
            for process in range(job.num_processes)
        ],
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
