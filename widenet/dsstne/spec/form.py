"""The form of DSSTNE's documents, and that of earlier versions of widenet, which named a dialect."""

import json
from typing import Any

from widenet.dsstne.spec.network import is_dsstne, translation, without_comments
from widenet.dsstne.spec.neutral import has_dialect, without_dialect
from widenet.extensions import Translated


def plain(text: str) -> str:
    """See `DocumentForm.plain`: DSSTNE's documents may have comments."""
    return without_comments(text) if '"dataset"' in text.lower() else text


def owns(values: object) -> bool:
    """See `DocumentForm.owns`."""
    return has_dialect(values) or is_dsstne(values)


def translated(values: dict[str, Any], where: str) -> Translated:
    """See `DocumentForm.translated`."""
    if has_dialect(values):
        values = without_dialect(values, where)
        if not is_dsstne(values):
            return Translated(values, is_reworded=False)
    document = translation(values, where)
    return Translated(document.network, (*document.notes, *_left_to_training(document.training)))


def _left_to_training(settings: dict[str, Any]) -> list[str]:
    """What a DSSTNE network says of its training, and training.json has to say here."""
    usual = {"shuffle": True}
    return [
        f"training.json decides on {key}; DSSTNE's document has {json.dumps({key: value})}."
        for key, value in settings.items()
        if value != usual.get(key)
    ]
