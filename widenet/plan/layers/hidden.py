"""Plans of fully connected layers."""

from collections.abc import Iterator
from typing import TypeVar

from widenet.plan.job import Job
from widenet.plan.layers import LayerPlan
from widenet.plan.layout import Layout, Link, Weight
from widenet.plan.weights import check_split, link_of, split_where_it_pays
from widenet.spec.layers import HiddenLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.spatial import ConvolutionLayer

TRAINED, FOLLOWING = ("scale", "shift"), ("mean", "variance")
"""Tensors of a batch normalization: weights and running statistics."""

Spec = TypeVar("Spec", bound=HiddenLayer | ConvolutionLayer)


class ActivatedPlan(LayerPlan[Spec]):
    """Layers that add up products with shared or own weights, and make activations of them."""

    def links(self, spec: NetworkSpec, layer: Spec) -> dict[str, Link]:
        """See `LayerPlan.links`."""
        return {source: link_of(spec, layer, source) for source in spec.sources(layer)}

    def numbers(self, layout: Layout, layer: Spec) -> Iterator[tuple[str, Weight]]:
        """Yield biases and normalizations: one for each unit, or for each filter of a convolution."""
        kinds = ["bias"] * layer.bias
        if layer.batch_normalization is not None:
            kinds += [f"normalization {part}" for part in (*TRAINED, *FOLLOWING)]
        channels = layout.shapes[layer.name][0]
        for kind in kinds:
            trained = not kind.endswith(FOLLOWING)
            yield f"{layer.name} {kind}", Weight(layer.name, channels, None, wide=False, trained=trained)

    def activations(self, job: Job, layer: Spec) -> int:
        """Return the default's numbers, and what a normalization made of the sums."""
        units = job.vectors(layer.name) * job.layout.units[layer.name]
        return super().activations(job, layer) + units * (layer.batch_normalization is not None)


class HiddenPlan(ActivatedPlan[HiddenLayer]):
    """Fully connected layers."""

    def weight(self, layout: Layout, layer: HiddenLayer, source: str) -> Weight:
        """Return the weight for a source, cut into shards of units if the layer is split."""
        return split_where_it_pays(layout, layer, super().weight(layout, layer, source), source)

    def check(self, layout: Layout, layer: HiddenLayer) -> None:
        """See `LayerPlan.check`."""
        check_split(layout, layer)


PLAN = HiddenPlan()
