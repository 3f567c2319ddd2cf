"""Decides which wide weights begin with vectors from a file."""

from dataclasses import dataclass
from typing import Any

from widenet.plan.layout import Layout, Weight
from widenet.plan.windows import Place
from widenet.spec.initializers import FromFile
from widenet.spec.layers import Layer, OutputLayer


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
        weights = [name for name, weight in layout.weights.items() if _has_vectors(layer, weight)]
        place = Place.find(layout.network, layer)
        rule = (
            '"file" needs a layer that owns one weight with a vector for each feature: a hidden layer over a'
            " sparse input, or an output over a hidden layer"
        )
        place.refuse("initializer", len(weights) != 1, rule, value=len(weights))
        weight = layout.weights[weights[0]]
        is_described = layout.is_described(weights[0])
        place.refuse("initializer", is_described, '"file" does not go with "described_by"')
        field, where = layout.rows_field(weight), place.of("initializer")
        found[weights[0]] = FileVectors(initializer, field, weight.row_length, where)
    return found


def _has_vectors(layer: Layer, weight: Weight) -> bool:
    """Return whether a weight is a layer's own, with a row for each feature of a field."""
    has_rows = weight.rows_are_features or (isinstance(layer, OutputLayer) and not weight.by_columns)
    return weight.layer == layer.name and bool(weight.columns) and has_rows and weight.describes is None
