"""Weights whose rows contain vectors of the attributes of items: "described_by" of layers."""

from dataclasses import dataclass

from widenet.errors import FitError, nearest
from widenet.plan.layout import Layout, Weight, is_sparse_input
from widenet.plan.windows import Place
from widenet.spec.layers import OutputLayer

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
    """Return the weights whose rows are described, by name.

    Raises:
        FitError: A hidden layer has not one source that is a sparse input.
    """
    network, found = layout.network, {}
    for layer in network.layers:
        names: tuple[str, ...] = getattr(layer, "described_by", None) or ()
        sources = [name for name in network.sources(layer) if is_sparse_input(network, name, layout.fields)]
        weight = end = layer.name
        if names and not isinstance(layer, OutputLayer):
            rule = "needs one source that is a sparse input"
            Place.find(network, layer).refuse("described_by", len(sources) != 1, rule, value=len(sources))
            weight, end = layout.links[layer.name, sources[0]].weight, sources[0]
        if names:
            found[weight] = Described(layer.name, layout.field_of(end), names)
    return found


def weights_of_descriptions(layout: Layout) -> dict[str, Weight]:
    """Return the vectors of attributes by name, given a layout that has all other weights.

    Raises:
        FitError: A layer cannot be described, or not by these attributes.
    """
    found, training = {}, layout.training
    kind, where = training.optimizer.kind, training.where
    penalties = {"l1": training.l1, "l2": training.l2}
    for name, own in described_weights(layout).items():
        layer, weight, known = (
            layout.network.layer(own.layer),
            layout.weights[name],
            layout.fields[own.field].described,
        )
        is_direct = isinstance(layer, OutputLayer) and weight.by_columns
        unknown = f'items of the field "{own.field}" have no description'
        rules = [
            (is_direct, "needs a hidden layer between the output and a sparse input"),
            *((each not in known, f'{unknown} "{each}".{nearest(each, known)}') for each in own.names),
            *((value, f"needs {key} 0 in {where}", value) for key, value in penalties.items()),
            (kind in _SHRINKING, f"needs an optimizer in {where} that shrinks no weights", kind),
        ]
        FitError.refuse(Place.find(layout.network, layer).of, *(("described_by", *rule) for rule in rules))
        rows = sum(known[each] for each in own.names)
        found[vectors_name(name)] = Weight(own.layer, rows, weight.columns, wide=False, describes=name)
    return found
