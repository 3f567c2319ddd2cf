"""Places at which documents differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from widenet.spec.document import leaves_of

_ABSENT = object()


def differing(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each document, its values at the places where the documents differ.

    A place is a dotted path such as `optimizer.learning_rate` or `layers[taste].units`. A document that lacks
    a place lacks it in the result, too. Places stand in the order of their first occurrence.
    """
    flat = [dict(leaves_of(document)) for document in documents]
    places = dict.fromkeys(place for document in flat for place in document)
    chosen = [place for place in places if len({repr(document.get(place, _ABSENT)) for document in flat}) > 1]
    return [{place: document[place] for place in chosen if place in document} for document in flat]


def as_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)
