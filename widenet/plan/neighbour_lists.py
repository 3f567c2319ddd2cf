"""The neighbours of outputs with a neighbourhood term."""

import math
from typing import get_args

from widenet.plan.job import Job
from widenet.plan.tiles import COUNTED_PAIRS
from widenet.spec.layers import Order, OutputLayer

_NEIGHBOUR_BYTES = 8 + 4
"""A key and a similarity."""
TRIED = (25, 10, 3)
"""The numbers of neighbours that are tried when a term is fitted."""
_FOUND_BYTES = 8 + 8 + 4 + 4
"""Unit, neighbour, similarity and rank, while a term is fitted."""
_PAIR_BYTES = 12 * 8
"""Keys, sums, their order and the neighbours of a pair that is counted, if all are distinct and are kept."""
_SPREAD = 16
"""Largest mean square of the entries of an example, as a multiple of the square of their mean."""


def neighbours_bytes(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes of the neighbours of an output's units in a process."""
    number = 0 if layer.neighbourhood is None else layer.neighbourhood.neighbours
    return _NEIGHBOUR_BYTES * number * job.rows(job.layout.of_output(layer.name), process)


def counting_bytes(job: Job, process: int) -> int:
    """Return the bytes of the pairs that a process's threads count together."""
    pairs = 0
    for layer in job.network.outputs:
        if layer.neighbourhood is not None:
            of_one = _SPREAD * (job.entries[layer.field] + 1) ** 2
            of_all = math.inf if job.all_examples is None else round(job.all_examples * of_one)
            pairs = max(pairs, int(min(COUNTED_PAIRS, of_all)))
    return _PAIR_BYTES * pairs * min(job.num_threads, job.num_held(process))


def fitting_bytes(job: Job, process: int) -> int:
    """Return the bytes of all neighbours that a process keeps while it fits a term."""
    return max(
        (
            _tried_orders(job, layer)
            * (
                _FOUND_BYTES * max(*TRIED, layer.neighbourhood.neighbours) * job.rows(weight, process)
                + 8 * job.layout.units[layer.name]
            )
            for layer in job.network.outputs
            if layer.neighbourhood is not None and layer.neighbourhood.fit
            for weight in [job.layout.of_output(layer.name)]
        ),
        default=0,
    )


def _tried_orders(job: Job, layer: OutputLayer) -> int:
    """Return how many settings of `order` are tried when a term is fitted: all along a sequence."""
    return len(get_args(Order)) if job.layout.fields[layer.field].kind == "sequence" else 1


def neighbours(job: Job) -> dict[str, dict[str, int]]:
    """Return the units of each output with a term, the neighbours of a unit, and the bytes of all."""
    return {
        layer.name: {
            "units": job.layout.units[layer.name],
            "neighbours": layer.neighbourhood.neighbours,
            "bytes": sum(neighbours_bytes(job, layer, process) for process in range(job.num_processes)),
        }
        for layer in job.network.outputs
        if layer.neighbourhood is not None
    }
