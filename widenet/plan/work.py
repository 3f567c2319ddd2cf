"""Counts the work of one process in one step: operations, and bytes sent to the others, read and written.

Counted are the products with the weights and what crosses shards, whatever an implementation saves or adds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from widenet.plan.job import Job
from widenet.plan.picture_layers import ends_of, weights_by_examples
from widenet.plan.streaming import is_elsewhere, num_tensors, touched_bytes
from widenet.plan.tiles import FILLED_POSITIONS
from widenet.plan.weights import matrices
from widenet.spec.layers import InputLayer
from widenet.spec.sequential import AttentionLayer


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
