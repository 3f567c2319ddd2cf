"""Plans of attention layers."""

from collections.abc import Iterator, Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.job import Job
from widenet.plan.layers import LayerPlan
from widenet.plan.layout import Layout, Link, Weight
from widenet.plan.tiles import FILLED_POSITIONS
from widenet.plan.windows import Place, Shape
from widenet.spec.layers import InputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.sequential import AttentionLayer

_MOST_ADDED = FILLED_POSITIONS - 1
"""Most positions that fill a sequence up."""


class AttentionPlan(LayerPlan[AttentionLayer]):
    """Layers with weights of their own, which multiply what the layer has made of its source."""

    def shape(self, place: Place, layer: AttentionLayer, sources: Mapping[str, Shape]) -> Shape:
        """Return the units of the source."""
        (shape,) = sources.values()
        return (prod(shape),)

    def links(self, spec: NetworkSpec, layer: AttentionLayer) -> dict[str, Link]:
        """Return no weights: none multiplies the source itself."""
        return {}

    def numbers(self, layout: Layout, layer: AttentionLayer) -> Iterator[tuple[str, Weight]]:
        """Yield the matrices with their biases, the vectors of positions, and the normalizations."""

        def of(rows: int, columns: int | None = None) -> Weight:
            return Weight(layer.name, rows, columns, wide=False)

        units = layout.units[layer.name]
        for name, inputs, outputs in matrices(layer, units):
            yield f"{layer.name}/{name}", of(outputs, inputs)
            yield f"{layer.name}/{name} bias", of(outputs)
        if layer.positions != "none":
            yield f"{layer.name}/positions", of(_newest(layout, layer), units)
        for name in ("attention", "feed forward", *["output"] * layer.normalize_output):
            yield f"{layer.name}/{name} scale", of(units)
            yield f"{layer.name}/{name} shift", of(units)

    def products(self, layout: Layout, layer: AttentionLayer) -> Iterator[tuple[int, int]]:
        """Yield the inputs and results of each matrix."""
        for _, inputs, outputs in matrices(layer, layout.units[layer.name]):
            yield inputs, outputs

    def pairwise(self, job: Job, layer: AttentionLayer) -> int:
        """Return the operations of 2 or 3 products of all pairs of positions, and of their gradients."""
        length = (
            -(-round(job.entries_of(job.layout.along[layer.name])) // FILLED_POSITIONS) * FILLED_POSITIONS
        )
        num = 3 if layer.positions == "relative" else 2
        return 6 * num * job.num_examples * length * length * job.layout.units[layer.name]

    def check(self, layout: Layout, layer: AttentionLayer) -> None:
        """Raise FitError unless the heads share the units evenly."""
        units = layout.units[layer.name]
        if units % layer.heads:
            place = Place.find(layout.network, layer).of("heads")
            raise FitError(f"must divide the units of its source, {units}", place=place, value=layer.heads)

    def activations(self, job: Job, layer: AttentionLayer) -> int:
        """Return the numbers of positions, and those of sequences that are filled up.

        A position has 12 for each unit and 2 for each inner one; a filled one has 6 for each unit, and 2 for
        each head and earlier position.
        """
        units, positions = job.layout.units[layer.name], job.vectors(layer.name)
        filled = positions + _MOST_ADDED * job.num_examples
        earlier = 2 * layer.heads * (_newest(job.layout, layer) + _MOST_ADDED)
        return positions * (12 * units + 2 * inner_units(layer, units)) + filled * (6 * units + earlier)


def matrices(layer: AttentionLayer, units: int) -> list[tuple[str, int, int]]:
    """Return the name, inputs and outputs of each matrix, in the order of the layer.

    They give queries, keys and values side by side, the joined heads, and the two fully connected layers.
    """
    inner = inner_units(layer, units)
    return [
        ("projections", units, 3 * units),
        ("joined", units, units),
        ("inner", units, inner),
        ("outer", inner, units),
    ]


def inner_units(layer: AttentionLayer, units: int) -> int:
    """Return the units of the first fully connected layer."""
    return units if layer.feed_forward is None else layer.feed_forward


def _newest(layout: Layout, layer: AttentionLayer) -> int:
    """Return the largest number of positions that the layer's input reads of a sequence."""
    along = layout.network.layer(layout.along[layer.name])
    assert isinstance(along, InputLayer)
    return along.newest


PLAN = AttentionPlan()
