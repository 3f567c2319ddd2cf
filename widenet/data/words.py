"""What people call the rows of a dataset and the features of its fields."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

LABELS = "field_of_labels"
"""The fact of a dataset's origin that names the field of labels, in extreme classification."""

_INTERACTIONS = "min_value"
"""A fact that every ingest of interactions records."""
_ITEMS = "items"
"""The usual name of a field of interactions."""


@dataclass(frozen=True)
class Words:
    """The words for a dataset, in the singular.

    Attributes:
        example: A row.
        features: A feature of some fields, by field; those of other fields are called features.
    """

    example: str
    features: Mapping[str, str]

    @property
    def examples(self) -> str:
        """Several rows."""
        return f"{self.example}s"

    def feature(self, *fields: str) -> str:
        """A feature of one field, or of any of several."""
        names = {self.features.get(field, "feature") for field in fields}
        return names.pop() if len(names) == 1 else "feature"


def words_of(fields: Collection[str], source: Mapping[str, object]) -> Words:
    """Return the words for a dataset, by its fields in their order and the facts of its origin.

    Interactions have users and items, extreme classification has points and labels, and every other dataset
    has examples and features.
    """
    if LABELS in source:
        return Words("point", {str(source[LABELS]): "label"})
    if _ITEMS in fields or _INTERACTIONS in source:
        return Words("user", {_ITEMS if _ITEMS in fields else next(iter(fields)): "item"})
    return Words("example", {})
