"""Plans of convolutions."""

from collections.abc import Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.layers.hidden import ActivatedPlan
from widenet.plan.layout import Layout, Weight
from widenet.plan.windows import Place, Shape, Windows, times, windows_of
from widenet.spec.spatial import ConvolutionLayer


class ConvolutionPlan(ActivatedPlan[ConvolutionLayer]):
    """Filters that move over the places of their sources."""

    def shape(self, place: Place, layer: ConvolutionLayer, sources: Mapping[str, Shape]) -> Shape:
        """Return the filters and their positions, which are the same over every source."""
        positions = {name: windows_of(place, layer, name, shape).positions for name, shape in sources.items()}
        first_name, first = next(iter(positions.items()))
        other = next((name for name in positions if positions[name] != first), None)
        if other is not None:
            raise FitError(
                f'must each give as many positions as "{first_name}", {times(first)}; "{other}" gives '
                f"{times(positions[other])}",
                place=place.of("source"),
            )
        return layer.filters, *first

    def windows(self, place: Place, layer: ConvolutionLayer, source: str, shape: Shape) -> Windows:
        """See `LayerPlan.windows`."""
        return windows_of(place, layer, source, shape)

    def weight(self, layout: Layout, layer: ConvolutionLayer, source: str) -> Weight:
        """Return the filters: a row each, of the numbers of a window."""
        windows = layout.windows[layer.name, source]
        return Weight(layer.name, layer.filters, windows.inputs, wide=False, places=prod(windows.kernel))

    def is_divisible(self, layout: Layout, layer: ConvolutionLayer) -> bool:
        """See `LayerPlan.is_divisible`."""
        couples = (
            layer.dropout,
            layer.sparseness,
            layer.delta_norm,
            layer.batch_normalization,
            layer.weights,
        )
        names = [f"{layer.name}/{source}" for source in layout.network.sources(layer)]
        return (
            layer.split is not False and not any(couples) and all(layout.users(name) == 1 for name in names)
        )

    def must_be_divided(self, layer: ConvolutionLayer) -> bool:
        """See `LayerPlan.must_be_divided`."""
        return layer.split is True


PLAN = ConvolutionPlan()
