"""Counts the bytes that a step moves between the device's memory and a disk or the host's memory."""

from widenet.plan.job import Job
from widenet.plan.memory import waits
from widenet.plan.streaming import is_elsewhere, touched_bytes, with_state
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import OutputLayer


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
    return (
        (1 if closed else 2 if row_wise else 0)
        + (layer.delta_norm is not None)
        + (1 + limited if waits(job, layer) else 0)
    )
