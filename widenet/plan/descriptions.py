"""Weights whose rows contain vectors of the attributes of items: "described_by" of layers."""

from collections.abc import Iterator
from dataclasses import dataclass

from widenet.errors import nearest
from widenet.plan.layout import Layout, Weight
from widenet.plan.windows import Place
from widenet.spec.layers import InputLayer, Layer, OutputLayer

_SHRINKING = ("adamw",)
"""Optimizers that shrink weights, which would shrink the attributes' share of a row as if it were its own."""

ASSUMED_ATTRIBUTES = 5
"""Attributes of an item in plans; a dataset is not read for their number."""


@dataclass(frozen=True)
class Described:
    """A weight whose rows are described.

    Attributes:
        layer: The layer that owns it.
        field: The field whose features are the rows.
        names: The descriptions of the field, in the order of their vectors.
    """

    layer: str
    field: str
    names: tuple[str, ...]


def vectors_name(weight: str) -> str:
    """Return the name of the vectors of attributes that belong to a weight."""
    return f"{weight} description"


def described_weights(layout: Layout) -> dict[str, Described]:
    """Return the weights whose rows are described, by name."""
    found = {}
    for layer, field, names in _described(layout):
        weight = layer.name
        if not isinstance(layer, OutputLayer):
            weight = layout.links[layer.name, _sparse_sources(layout, layer)[0].name].weight
        found[weight] = Described(layer.name, field, names)
    return found


def weights_of_descriptions(layout: Layout) -> dict[str, Weight]:
    """Return the vectors of attributes by name, given a layout that has all other weights.

    Raises:
        FitError: A layer cannot be described, or not by these attributes.
    """
    for layer, field, names in _described(layout):
        _check(layout, layer, field, names)
    found = {}
    for name, described in described_weights(layout).items():
        widths = layout.fields[described.field].described
        rows = sum(widths[each] for each in described.names)
        columns = layout.weights[name].columns
        found[vectors_name(name)] = Weight(described.layer, rows, columns, wide=False, describes=name)
    return found


def _described(layout: Layout) -> Iterator[tuple[Layer, str, tuple[str, ...]]]:
    """Yield the layers that are described, with the field of their features, and the descriptions.

    Raises:
        FitError: A hidden layer has not one source that is a sparse input.
    """
    for layer in layout.network.layers:
        names: tuple[str, ...] = getattr(layer, "described_by", None) or ()
        if isinstance(layer, OutputLayer) and names:
            yield layer, layer.field, names
        elif names:
            sources = _sparse_sources(layout, layer)
            Place.find(layout.network, layer).refuse(
                "described_by",
                len(sources) != 1,
                f"needs one source that is a sparse input; it has {len(sources)}",
            )
            yield layer, sources[0].field, names


def _sparse_sources(layout: Layout, layer: Layer) -> list[InputLayer]:
    sources = map(layout.network.layer, layout.network.sources(layer))
    return [
        source
        for source in sources
        if isinstance(source, InputLayer) and layout.fields[source.field].kind != "dense"
    ]


def _check(layout: Layout, layer: Layer, field: str, names: tuple[str, ...]) -> None:
    place, training = Place.find(layout.network, layer), layout.training
    is_direct = isinstance(layer, OutputLayer) and layout.weights[layer.name].by_columns
    place.refuse("described_by", is_direct, "needs a hidden layer between the output and a sparse input")
    known = getattr(layout.fields[field], "described", {})
    for name in names:
        place.refuse(
            "described_by",
            name not in known,
            f'items of the field "{field}" have no description "{name}".{nearest(name, known)}',
        )
    for key, value in (("l1", training.l1), ("l2", training.l2)):
        place.refuse("described_by", value, f"needs {key} 0 in {training.where}", value=value)
    kind = training.optimizer.kind
    place.refuse(
        "described_by",
        kind in _SHRINKING,
        f"needs an optimizer in {training.where} that shrinks no weights",
        value=kind,
    )
