"""Counts the work of one process in one step: operations, and bytes sent to the others, read and written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from widenet.plan.descriptions import ASSUMED_ATTRIBUTES
from widenet.plan.job import Job
from widenet.plan.layers import plan_of
from widenet.plan.memory import by_library, examples_of_shards, keeps, waits
from widenet.plan.narrow import dividing_pays, most_rows, num_blocks, shares
from widenet.plan.picture_layers import SUMMED_NUMBERS, ends_of, weights_by_examples
from widenet.plan.streaming import is_elsewhere, touched_bytes, with_state
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import InputLayer, OutputLayer


def streamed_bytes(job: Job, process: int) -> tuple[int, int]:
    """Return the bytes that a process reads in a step, and those that it writes.

    Rows that a batch touches count as pages of a disk that memory does not hold yet.
    """
    read = written = 0
    for name, weight in job.layout.weights.items():
        if not is_elsewhere(job, weight):
            continue
        rows = job.rows(weight, process)
        users = [layer for layer in job.network.outputs if job.layout.links[layer.name, ""].weight == name]
        if weight.norm_limit is not None and weight.rows_are_features:
            read += rows * weight.row_bytes
        if job.layout.is_described(name):  # the change of the vectors of attributes moves all rows
            read, written = read + rows * weight.row_bytes, written + rows * weight.row_bytes
        swept = [layer for layer in users if layer.sample is None]
        if swept:
            passes = sum(_readings(job, layer) for layer in swept)
            read += rows * (passes * weight.row_bytes + with_state(job, weight))
            written += rows * with_state(job, weight) * weight.trained
            if job.weights_in == "host":  # rows of inputs, which a disk's file holds in memory's own pages
                read += touched_bytes(job, name, process)
        else:
            touched = touched_bytes(job, name, process)
            read, written = read + touched, written + touched * weight.trained
    return read, written


def _readings(job: Job, layer: OutputLayer) -> int:
    """Return how often a step reads an output's weight besides the update."""
    row_wise = layer.activation.kind in ROW_WISE
    closed = layer.activation.kind == "softmax" and layer.loss.kind.endswith("cross_entropy")
    limited = job.training.gradient_norm_limit is not None
    gives_slopes = not (closed and by_library(job, layer))  # in a pass of its own
    return (
        (1 if closed else 2 if row_wise else 0)
        + (layer.delta_norm is not None)
        + (gives_slopes + limited if waits(job, layer) else 0)
    )


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
    others, num = job.num_processes - 1, job.num_processes
    sent = sum(summed_bytes(job)) * 2 * others / num + sum(gathered_bytes(job)) * others
    return Work(
        sum(_products(job, process)) + sum(_described(job, process)),
        round(sent),
        *streamed_bytes(job, process),
    )


def _products(job: Job, process: int) -> Iterator[int]:
    for (layer, source), link in job.layout.links.items():
        weight = job.layout.weights[link.weight]
        if not source:
            continue
        if weight.split:
            num = job.vectors(layer) * job.rows(weight, process) * weight.row_length
            yield 2 * (1 + weight.trained + _has_gradient(job, source)) * num
        elif weight.wide:
            share = job.num_held(process) / job.training.shards
            products = 1 + weight.trained
            yield round(2 * products * job.num_examples * job.entries_of(source) * share * weight.row_length)
        else:
            yield from (operations for operations, _ in _narrow(job, layer, source))
    yield from (operations for operations, _ in _further(job))
    for output in job.network.outputs:
        weight = job.layout.of_output(output.name)
        rows, num = job.rows(weight, process), job.vectors(output.name)
        if weight.by_columns:
            entries = num * job.entries_of(job.network.sources(output)[0])
            yield round(2 * (_passes(job, output, process) - 1) * entries * rows)
        else:
            yield (
                2
                * _passes(job, output, process)
                * num
                * job.units_at_work(output, process)
                * weight.row_length
            )


def _described(job: Job, process: int) -> Iterator[int]:
    """Yield the operations of descriptions: the gradient to their vectors, and the change of the rows."""
    for weight in job.layout.weights.values():
        if weight.describes is not None:
            rows = job.rows(job.layout.weights[weight.describes], process)
            yield 2 * 2 * rows * ASSUMED_ATTRIBUTES * weight.row_length


def _narrow(job: Job, layer: str, source: str) -> Iterator[tuple[int, int]]:
    """Yield, for each product of a narrow layer with a source, a process's operations and the bytes it sends.

    A recurrent layer multiplies its states time by time, but computes the gradient to their weight at once.
    """
    spec = next(hidden for hidden in job.network.hidden if hidden.name == layer)
    units = plan_of(spec).sums(spec, job.layout.units[layer])
    num, inputs = job.vectors(layer), job.layout.units[source]
    with_inputs, most = _has_gradient(job, source), job.training.shards
    if (layer, source) in job.layout.windows:
        windows, filters = job.layout.windows[layer, source], job.layout.shapes[layer][0]
        if layer in job.layout.by_examples:
            product = 2 * examples_of_shards(job) * job.layout.units[layer] * windows.inputs
            yield from [(product, 0)] * (3 if with_inputs else 2)
            return
        yield from shares(num, windows, filters, with_inputs, most, job.num_processes, job.device)
        return
    times = max(1, num // job.num_examples) if source == layer else 1
    shapes = [(num // times, inputs, units)] * times
    if job.layout.weights[job.layout.links[layer, source].weight].trained:
        shapes.append((units, num, inputs))
    if with_inputs:
        shapes += [(num // times, units, inputs)] * times
    yield from _in_blocks(job, shapes)


def _further(job: Job) -> Iterator[tuple[int, int]]:
    """Yield the same as `_narrow` for products that multiply no source, but what a layer has made of it."""
    for layer in job.network.hidden:
        num = job.vectors(layer.name)
        for inputs, units in plan_of(layer).products(job.layout, layer):
            shapes = [(num, inputs, units), (units, num, inputs), (num, units, inputs)]
            yield from _in_blocks(job, shapes)
        yield plan_of(layer).pairwise(job, layer), 0


def _in_blocks(job: Job, shapes: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield operations and bytes as `_narrow` does, for products of so many rows, inputs and columns."""
    for rows, inner, columns in shapes:
        count = num_blocks(rows, inner, columns, job.training.shards, job.device)
        divided = count > 1 and dividing_pays(inner, job.num_processes, job.device)
        own = most_rows(rows, count, job.num_processes) if divided else rows
        yield 2 * own * inner * columns, 4 * own * columns * divided


def _has_gradient(job: Job, source: str) -> bool:
    """Return whether a source has trained weights before it, so that a step needs the gradient to it."""
    layer = job.network.layer(source)
    if not getattr(layer, "frozen", False):
        return not isinstance(layer, InputLayer)
    return any(_has_gradient(job, before) for before in job.network.sources(layer))


def _passes(job: Job, output: OutputLayer, process: int) -> int:
    """Return the number of an output's products in a step: logits, two gradients, and recomputed ones."""
    row_wise = output.activation.kind in ROW_WISE
    closed = output.activation.kind == "softmax" and output.loss.kind.endswith("cross_entropy")
    limited = job.training.gradient_norm_limit is not None and output.sample is None
    trained = job.layout.of_output(output.name).trained
    if by_library(job, output):
        recomputed = (closed or waits(job, output)) and not keeps(job, output, process)
        return 2 + (trained + recomputed) * (1 + limited)
    again = 0
    if not keeps(job, output, process):
        again = (1 if closed else 2 if row_wise else 0) + (1 if waits(job, output) else 0)
        again += 1 if output.delta_norm is not None else 0
    return 2 + trained + again + (2 if limited else 0)


def summed_bytes(job: Job) -> Iterator[int]:
    """Yield the bytes of each sum over the processes: 64-bit integers, and the peak of every row."""
    for (layer, source), link in job.layout.links.items():
        weight = job.layout.weights[link.weight]
        if source and weight.wide and (_has_gradient(job, source) or not weight.split):
            yield 8 * job.vectors(layer) * (weight.row_length + 1)
    for output in job.network.outputs:
        num = job.vectors(output.name)
        yield 8 * num * (job.layout.of_output(output.name).incoming + 1) + 16
    for weight in job.layout.weights.values():
        if weight.describes is not None:
            yield 8 * weight.rows * (weight.row_length + 1)
    numbers = sum(job.layout.weights[name].numbers for name in weights_by_examples(job.layout))
    yield 8 * -(-numbers // SUMMED_NUMBERS) * (SUMMED_NUMBERS + 1)
    if job.training.gradient_norm_limit is not None:
        samples = sum(output.sample is not None and output.bias for output in job.network.outputs)
        yield 16 * (
            samples
            + sum(weight.wide and weight.columns is not None for weight in job.layout.weights.values())
        )
    for weight in job.layout.weights.values():
        if weight.norm_limit is not None and weight.rows_are_features:
            yield 16 * weight.row_length


def gathered_bytes(job: Job) -> Iterator[int]:
    """Yield the bytes that a process gives to every other: statistics, and parts of layers."""
    examples = -(-job.num_examples // job.training.shards) * job.most_held
    for end in ends_of(job.layout, job.layout.by_examples):
        yield 4 * examples * job.layout.units[end]
    for output in job.network.outputs:
        num = job.vectors(output.name)
        if output.delta_norm is not None:
            yield 8 * num * job.most_held
        if output.activation.kind in ROW_WISE:
            yield 8 * num * (3 if output.activation.kind == "softmax" else 2) * job.most_held
    for (layer, source), link in job.layout.links.items():
        weight = job.layout.weights[link.weight]
        if source and weight.split:
            yield 4 * job.vectors(layer) * job.shards(weight).size(0) * job.most_held
        elif source and not weight.wide:
            yield from (sent for _, sent in _narrow(job, layer, source))
    yield from (sent for _, sent in _further(job))
