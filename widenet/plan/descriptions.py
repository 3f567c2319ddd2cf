"""Weights whose rows contain vectors of the attributes of items: "described_by" of layers."""

from dataclasses import dataclass

from widenet.errors import FitError, nearest
from widenet.plan.layout import Layout, Weight, is_sparse_input
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
    for layer in layout.network.layers:
        names = _names(layer)
        if isinstance(layer, OutputLayer) and names:
            found[layer.name] = Described(layer.name, layer.field, names)
        elif names:
            (source,) = _sparse_sources(layout, layer)
            owner = layout.network.layer(source)
            assert isinstance(owner, InputLayer)
            weight = layout.links[layer.name, source].weight
            found[weight] = Described(layer.name, owner.field, names)
    return found


def weights_of_descriptions(layout: Layout) -> dict[str, Weight]:
    """Return the vectors of attributes by name, given a layout that has all other weights.

    Raises:
        FitError: A layer cannot be described, or not by these attributes.
    """
    for layer in layout.network.layers:
        if _names(layer):
            _check(layout, layer)
    found = {}
    for name, described in described_weights(layout).items():
        widths = layout.fields[described.field].described
        rows = sum(widths[each] for each in described.names)
        columns = layout.weights[name].columns
        found[vectors_name(name)] = Weight(described.layer, rows, columns, wide=False, describes=name)
    return found


def _names(layer: Layer) -> tuple[str, ...]:
    """Return the descriptions that a layer names, if its kind has some."""
    return getattr(layer, "described_by", None) or ()


def _sparse_sources(layout: Layout, layer: Layer) -> list[str]:
    return [
        source
        for source in layout.network.sources(layer)
        if is_sparse_input(layout.network, source, layout.fields)
    ]


def _check(layout: Layout, layer: Layer) -> None:
    place = Place.find(layout.network, layer)
    if not isinstance(layer, OutputLayer):
        sources = _sparse_sources(layout, layer)
        if len(sources) != 1:
            rule = f"needs one source that is a sparse input; it has {len(sources)}"
            raise FitError(rule, place=place.of("described_by"))
        owner = layout.network.layer(sources[0])
        assert isinstance(owner, InputLayer)
        field = owner.field
    else:
        field = layer.field
        if layout.weights[layer.name].by_columns:
            raise FitError(
                "needs a hidden layer between the output and a sparse input", place=place.of("described_by")
            )
    known = getattr(layout.fields[field], "described", {})
    for name in _names(layer):
        if name not in known:
            raise FitError(
                f'items of the field "{field}" have no description "{name}".{nearest(name, known)}',
                place=place.of("described_by"),
            )
    training = layout.training
    for key, value in (("l1", training.l1), ("l2", training.l2)):
        if value:
            raise FitError(f"needs {key} 0 in {training.where}", place=place.of("described_by"), value=value)
    if training.optimizer.kind in _SHRINKING:
        raise FitError(
            f"needs an optimizer in {training.where} that shrinks no weights",
            place=place.of("described_by"),
            value=training.optimizer.kind,
        )
