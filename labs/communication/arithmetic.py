"""What processes exchange in a step, by the ways to divide a network, and its bytes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.places import EXAMPLES
from widenet.plan.binding import bind
from widenet.plan.layout import FieldFacts, Job, Layout, Width
from widenet.plan.memory import exchanges
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

PICTURE = 3 * 227 * 227


@dataclass(frozen=True)
class Exchange:
    """A tensor of a step that all processes exchange.

    Attributes:
        kind: "sum" adds up what each process has, for all of them; "gather" joins equal parts of all for all;
            "scatter" adds up too, but each process gets an equal part of the sum.
        numbers: Length of the whole tensor.
        bytes_each: 4 for float32, 8 for int64.
    """

    kind: Literal["sum", "gather", "scatter"]
    numbers: int
    bytes_each: int = 4

    def sent_bytes(self, processes: int) -> float:
        """Return what a process sends by a ring: a sum is a scatter and a gather."""
        times = 2 if self.kind == "sum" else 1
        return times * self.numbers * self.bytes_each * (processes - 1) / processes


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


def ways(layout: Layout, processes: int) -> dict[str, list[Exchange]]:
    """Return what processes exchange in a step by each way to divide a network; the hybrid for convolutions.

    - data-parallel: every process has all weights and a part of the batch; gradients are added up.
    - hybrid of 2014: convolutions data-parallel, full layers model-parallel (Krizhevsky, "One weird trick for
      parallelizing convolutional neural networks", 2014).
    - widenet: what widenet's plan counts.
    """
    job = Job(layout, num_processes=processes)
    hybrid = {"hybrid of 2014": _hybrid(layout)} if layout.by_examples else {}
    return {"data-parallel": [Exchange("sum", num_weights(layout))], **hybrid, "widenet": _widenet(job)}


def sent_bytes(exchanges: Iterable[Exchange], processes: int) -> float:
    """Return the bytes that a process sends in all of them."""
    return sum(each.sent_bytes(processes) for each in exchanges)


def _hybrid(layout: Layout) -> list[Exchange]:
    """Add up gradients of filters; gather inputs of full layers, and hand out the sums of their gradients.

    The whole batch's inputs are gathered at once, the first of the three variants of the paper. A process
    needs the sum of the gradients of its own part alone.
    """
    filters = sum(weight.numbers for weight in layout.weights.values() if not weight.wide)
    inputs = [
        layout.units[source]
        for (_, source), link in layout.links.items()
        if source and layout.weights[link.weight].wide
    ]
    inputs += [layout.of_output(output.name).incoming for output in layout.network.outputs]
    gathered = [Exchange("gather", layout.training.batch_size * units) for units in inputs]
    return [Exchange("sum", filters), *gathered, *(replace(each, kind="scatter") for each in gathered)]


def _widenet(job: Job) -> list[Exchange]:
    """Add up 64-bit integers, and gather parts of layers."""
    found = [
        Exchange(kind, num_bytes // 8, 8)
        if kind == "sum"
        else Exchange(kind, job.num_processes * num_bytes // 4)
        for kind, num_bytes in exchanges(job)
    ]
    return [each for each in found if each.numbers]
