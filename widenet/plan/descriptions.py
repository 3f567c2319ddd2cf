"""Vectors of features from elsewhere: of the attributes of items ("described_by"), and of a file."""

from dataclasses import dataclass
from typing import Any

from widenet.errors import FitError, nearest
from widenet.plan.layout import Layout, Weight, is_sparse_input
from widenet.plan.windows import Place
from widenet.spec.initializers import FromFile
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


@dataclass(frozen=True)
class FileVectors:
    """Vectors of a file for the rows of a wide weight.

    Attributes:
        spec: The initializer that names the file.
        field: The field whose features are the rows.
        columns: Numbers of a row.
        place: Where the document names the file, for messages.
    """

    spec: FromFile
    field: str
    columns: int
    place: str


def file_vectors(layout: Layout) -> dict[str, FileVectors]:
    """Return the vectors with which weights begin, by the name of the weight.

    Raises:
        FitError: A layer names a file but has no weight, or several, with a row for each feature.
    """
    found = {}
    for layer in layout.network.layers:
        initializer: Any = getattr(layer, "initializer", None)
        if not isinstance(initializer, FromFile):
            continue
        is_output, at = isinstance(layer, OutputLayer), Place.find(layout.network, layer).of
        own = {name: weight for name, weight in layout.weights.items() if weight.layer == layer.name}
        vectors = [  # weights with a row for each feature of a field
            name
            for name, weight in own.items()
            if weight.describes is None and weight.columns and not weight.by_columns
            if weight.rows_are_features or is_output
        ]
        rule = (
            '"file" needs a layer that owns one weight with a vector for each feature: a hidden layer over a'
            " sparse input, or an output over a hidden layer"
        )
        is_described, beside = (
            any(map(layout.is_described, vectors)),
            '"file" does not go with "described_by"',
        )
        FitError.refuse(at, ("initializer", len(vectors) != 1, rule), ("initializer", is_described, beside))
        weight = own[vectors[0]]
        found[vectors[0]] = FileVectors(
            initializer, layout.rows_field(weight), weight.row_length, at("initializer")
        )
    return found
