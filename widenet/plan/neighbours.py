"""The neighbours of outputs with a neighbourhood term."""

from widenet.plan.job import Job
from widenet.spec.layers import OutputLayer

_NEIGHBOUR_BYTES = 8 + 4
"""A key and a similarity."""


def neighbours_bytes(job: Job, layer: OutputLayer, process: int) -> int:
    """Return the bytes of the neighbours of an output's units in a process."""
    number = 0 if layer.neighbourhood is None else layer.neighbourhood.neighbours
    return _NEIGHBOUR_BYTES * number * job.rows(job.layout.of_output(layer.name), process)


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
