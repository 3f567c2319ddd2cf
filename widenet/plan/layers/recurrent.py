"""Plans of recurrent layers."""

from collections.abc import Iterator

from widenet.plan.job import Job
from widenet.plan.layers import LayerPlan
from widenet.plan.layout import Layout, Link, Weight
from widenet.plan.weights import split_where_it_pays
from widenet.spec.network import NetworkSpec
from widenet.spec.sequential import RecurrentLayer


class RecurrentPlan(LayerPlan[RecurrentLayer]):
    """Layers that are a source of their own: the state before."""

    def links(self, spec: NetworkSpec, layer: RecurrentLayer) -> dict[str, Link]:
        """Return the weights of the sources, and that of the state before."""
        return {**super().links(spec, layer), layer.name: Link(f"{layer.name}/{layer.name}")}

    def sums(self, layer: RecurrentLayer, units: int) -> int:
        """Return one sum for each gate and unit."""
        return layer.sums

    def weight(self, layout: Layout, layer: RecurrentLayer, source: str) -> Weight:
        """Return the weight for a source or the state before, cut into shards if the layer is split."""
        return split_where_it_pays(layout, layer, super().weight(layout, layer, source), source)

    def numbers(self, layout: Layout, layer: RecurrentLayer) -> Iterator[tuple[str, Weight]]:
        """Yield the biases of the gates."""
        if layer.bias:
            yield f"{layer.name} bias", Weight(layer.name, 4 * layer.units, None, wide=False)

    def activations(self, job: Job, layer: RecurrentLayer) -> int:
        """Return the default's numbers, and as many of the gates."""
        return super().activations(job, layer) + 4 * job.vectors(layer.name) * layer.sums


PLAN = RecurrentPlan()
