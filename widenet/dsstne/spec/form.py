"""The document form of DSSTNE's networks."""

import json
from typing import Any

from widenet.dsstne.spec.network import is_dsstne, translation, without_comments
from widenet.extensions import Translated


def plain(text: str) -> str:
    """See `DocumentForm.plain`: DSSTNE's documents may have comments."""
    return without_comments(text) if '"dataset"' in text.lower() else text


def owns(values: object) -> bool:
    """See `DocumentForm.owns`."""
    return is_dsstne(values)


def translated(values: dict[str, Any], where: str) -> Translated:
    """See `DocumentForm.translated`."""
    document = translation(values, where)
    return Translated(document.network, (*document.notes, *_training_notes(document.training)))


def _training_notes(settings: dict[str, Any]) -> list[str]:
    """Return a note for each setting of a DSSTNE network that belongs in training.json."""
    defaults = {"shuffle": True}
    return [
        f"training.json decides on {key}; DSSTNE's document has {json.dumps({key: value})}."
        for key, value in settings.items()
        if value != defaults.get(key)
    ]
