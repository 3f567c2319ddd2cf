"""Places at which documents differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ABSENT = object()


def differing(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each document, its values at the places where the documents differ.

    A place is a dotted path such as `optimizer.learning_rate` or `layers[taste].units`. A document that lacks
    a place lacks it in the result, too. Places stand in the order of their first occurrence.
    """
    flat = [dict(_leaves(document)) for document in documents]
    places = dict.fromkeys(place for document in flat for place in document)
    chosen = [place for place in places if len({repr(document.get(place, _ABSENT)) for document in flat}) > 1]
    return [{place: document[place] for place in chosen if place in document} for document in flat]


def as_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path of every simple value with it; named objects in lists stand under their names."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list) and value and all(isinstance(inner, Mapping) for inner in value):
        for position, inner in enumerate(value):
            yield from _leaves(inner, f"{place}[{inner.get('name', position)}]")
    else:
        yield place, value
