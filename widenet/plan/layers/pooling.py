"""Plans of pooling layers."""

from collections.abc import Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.job import Job
from widenet.plan.layers import LayerPlan
from widenet.plan.layout import Layout, Link
from widenet.plan.windows import Place, Shape, Windows, windows_of
from widenet.spec.network import NetworkSpec
from widenet.spec.spatial import PoolingLayer


class PoolingPlan(LayerPlan[PoolingLayer]):
    """Functions of the sources, without weights."""

    def shape(self, place: Place, layer: PoolingLayer, sources: Mapping[str, Shape]) -> Shape:
        """Return the shape that the layer's function gives."""
        first_name, first = next(iter(sources.items()))
        if layer.function.kind == "lrn":
            if len(first) == 1:
                raise FitError(f'needs channels; "{first_name}" is flat', place=place.of("source"))
            return first
        if layer.kernel is not None:
            windows = windows_of(place, layer, first_name, first)
            return windows.channels, *windows.positions
        for name, shape in sources.items():
            if prod(shape) != prod(first):
                raise FitError(
                    f'must have equally many units; "{first_name}" has {prod(first)}, "{name}" {prod(shape)}',
                    place=place.of("source"),
                )
        if layer.function.kind == "maxout":
            return first if all(shape == first for shape in sources.values()) else (prod(first),)
        return (len(sources) - 1,)

    def windows(self, place: Place, layer: PoolingLayer, source: str, shape: Shape) -> Windows | None:
        """See `LayerPlan.windows`."""
        return None if layer.kernel is None else windows_of(place, layer, source, shape)

    def links(self, spec: NetworkSpec, layer: PoolingLayer) -> dict[str, Link]:
        """Return no weights."""
        return {}

    def is_divisible(self, layout: Layout, layer: PoolingLayer) -> bool:
        """See `LayerPlan.is_divisible`."""
        return True

    def activations(self, job: Job, layer: PoolingLayer) -> int:
        """Return the default's numbers, and two padded copies of a source whose windows are pooled."""
        pooled = [source for name, source in job.layout.windows if name == layer.name]
        copies = sum(2 * job.vectors(source) * job.layout.units[source] for source in pooled)
        return super().activations(job, layer) + copies


PLAN = PoolingPlan()
