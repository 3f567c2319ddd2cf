"""Decides which wide weights begin with vectors from a file."""

from dataclasses import dataclass
from typing import Any

from widenet.errors import FitError
from widenet.plan.layout import Layout
from widenet.plan.windows import Place
from widenet.spec.initializers import FromFile
from widenet.spec.layers import OutputLayer


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
