"""Plans of the layers between inputs and outputs: one module for each kind, named after it."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from widenet.plan.job import Job
from widenet.plan.layout import Layout, Link, Weight, is_sparse_input
from widenet.plan.windows import Place, Shape, Windows
from widenet.spec.layers import Trunk
from widenet.spec.network import NetworkSpec

Spec = TypeVar("Spec", bound=Trunk)


def plan_of(layer: Trunk) -> "LayerPlan[Any]":
    """Return what a layer needs: the `PLAN` of the module of its kind."""
    plan: LayerPlan[Any] = import_module(f"{__name__}.{layer.kind}").PLAN
    return plan


class LayerPlan(Generic[Spec]):
    """Plan of the layers of one kind.

    The defaults are those of a layer of `units` units, with a weight of its own from each source to `sums`
    numbers, and no biases.
    """

    def shape(self, place: Place, layer: Spec, sources: Mapping[str, Shape]) -> Shape:
        """Return the layer's shape, given those of its sources by name.

        Raises:
            FitError: It does not fit what feeds it.
        """
        units: int = getattr(layer, "units")  # noqa: B009
        return (units,)

    def windows(self, place: Place, layer: Spec, source: str, shape: Shape) -> Windows | None:
        """Return how the layer's kernel moves over a source; None without a kernel."""
        return None

    def links(self, spec: NetworkSpec, layer: Spec) -> dict[str, Link]:
        """Return the weight that the layer uses for each source, in the order in which they are computed."""
        return {source: Link(f"{layer.name}/{source}") for source in spec.sources(layer)}

    def sums(self, layer: Spec, units: int) -> int:
        """Return into how many numbers the sources are multiplied."""
        return units

    def weight(self, layout: Layout, layer: Spec, source: str) -> Weight:
        """Return the weight that the layer owns for a source.

        It has a row for each feature of a sparse input, else one for each sum.
        """
        units, sums = layout.units[source], self.sums(layer, layout.units[layer.name])
        features = source if is_sparse_input(layout.network, source, layout.fields) else None
        return Weight(
            layer.name,
            *((sums, units) if features is None else (units, sums)),
            wide=features is not None,
            input=features,
            norm_limit=getattr(layer, "weight_norm", None),
        )

    def numbers(self, layout: Layout, layer: Spec) -> Iterator[tuple[str, Weight]]:
        """Yield the layer's other weights, such as biases, with their names."""
        yield from ()

    def products(self, layout: Layout, layer: Spec) -> Iterator[tuple[int, int]]:
        """Yield the inputs and results of each further matrix, one of `numbers` that is no link's."""
        yield from ()

    def pairwise(self, job: Job, layer: Spec) -> int:
        """Return the operations of products of the vectors with each other in a step."""
        return 0

    def check(self, layout: Layout, layer: Spec) -> None:
        """Raise FitError if the layer asks for what its weights do not allow."""

    def is_divisible(self, layout: Layout, layer: Spec) -> bool:
        """Return whether the layer computes each example by itself, with weights that no other layer uses."""
        return False

    def must_be_divided(self, layer: Spec) -> bool:
        """Return whether the document says that examples are divided."""
        return False

    def activations(self, job: Job, layer: Spec) -> int:
        """Return how many float32 numbers a step keeps of the layer.

        The default is four for each unit: its sum, activation and gradient, and what dropout kept.
        """
        return 4 * job.vectors(layer.name) * job.layout.units[layer.name]
