"""Bytes that a process sends in a step, by the ways to divide a network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.places import EXAMPLES
from widenet.plan.binding import bind
from widenet.plan.job import Job
from widenet.plan.layout import FieldFacts, Layout, Width
from widenet.plan.work import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

PICTURE = 3 * 227 * 227


@dataclass(frozen=True)
class Sent:
    """Bytes that a process sends in a step.

    Attributes:
        data_parallel: Every process has all weights and a part of the batch; gradients are added up.
        hybrid: Convolutions data-parallel, full layers model-parallel (Krizhevsky, "One weird trick for
            parallelizing convolutional neural networks", 2014); None without convolutions.
        widenet: What widenet's plan counts.
    """

    data_parallel: float
    hybrid: float | None
    widenet: float


def ring(num_bytes: float, processes: int) -> float:
    """Return what a process sends to add up so many bytes over all processes by a ring."""
    return 2 * num_bytes * (processes - 1) / processes


def gathered(num_bytes: float, processes: int) -> float:
    """Return what a process sends to gather so many bytes, of which each has an equal part."""
    return num_bytes * (processes - 1) / processes


def alexnet(batch_size: int) -> Layout:
    """Return the example AlexNet for 1,000 classes."""
    folder = EXAMPLES / "alexnet"
    network, training = (
        json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("network", "training")
    )
    fields = {"pixels": Width(PICTURE, kind="dense"), "items": Width(1000)}
    return _bound(network, training | {"batch_size": batch_size}, fields)


def autoencoder(width: int, units: int, batch_size: int) -> Layout:
    """Return a network of one hidden layer between a sparse input and a softmax of equal width."""
    layers = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": units, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    training = {"epochs": 1, "batch_size": batch_size, "optimizer": "momentum"}
    return _bound({"layers": layers}, training, {"items": Width(width)})


def _bound(
    network: Mapping[str, object], training: Mapping[str, object], fields: Mapping[str, FieldFacts]
) -> Layout:
    return bind(NetworkSpec.of(network), TrainingSpec.of(training), fields)


def num_weights(layout: Layout) -> int:
    """Return the number of a network's trained weights and biases."""
    return sum(weight.numbers for weight in layout.weights.values() if weight.trained)


def sent(layout: Layout, processes: int) -> Sent:
    """Return the bytes of each way to divide a network among processes."""
    job = Job.of(layout, num_processes=processes)
    is_convolutional = bool(layout.by_examples)
    return Sent(
        ring(4 * num_weights(layout), processes),
        _hybrid(layout, processes) if is_convolutional else None,
        work(job).sent_bytes,
    )


def _hybrid(layout: Layout, processes: int) -> float:
    """Count gradients of filters, added up, and inputs of full layers and their gradients, gathered.

    The whole batch's inputs are gathered at once, the first of the three variants of the paper. A process
    needs the sum of the gradients of its own part alone.
    """
    filters = sum(weight.numbers for weight in layout.weights.values() if not weight.wide)
    sources = [
        source for (_, source), link in layout.links.items() if source and layout.weights[link.weight].wide
    ]
    inputs = sum(layout.units[source] for source in sources)
    inputs += sum(layout.of_output(output.name).incoming for output in layout.network.outputs)
    return ring(4 * filters, processes) + 2 * gathered(4 * layout.training.batch_size * inputs, processes)
