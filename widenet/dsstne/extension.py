"""What widenet knows of DSSTNE before it loads its libraries: documents and trained networks."""

import json
from pathlib import Path
from typing import Any

from widenet.dsstne.spec.network import is_dsstne, translation, without_comments
from widenet.extensions import Translated
from widenet.interop.formats import ImportOptions
from widenet.late_imports import optional


class Documents:
    """DSSTNE's network documents."""

    @staticmethod
    def plain(text: str) -> str:
        """See `DocumentForm.plain`: DSSTNE's documents may have comments."""
        return without_comments(text) if '"dataset"' in text.lower() else text

    @staticmethod
    def owns(values: object) -> bool:
        """See `DocumentForm.owns`."""
        return is_dsstne(values)

    @staticmethod
    def translated(values: dict[str, Any], where: str) -> Translated:
        """See `DocumentForm.translated`."""
        document = translation(values, where)
        notes = [
            f"training.json decides on {key}; DSSTNE's document has {json.dumps({key: value})}."
            for key, value in document.training.items()
            if (key, value) != ("shuffle", True)
        ]
        return Translated(document.network, (*document.notes, *notes))


class Networks:
    """Trained networks, for `widenet import`."""

    NAME = "NetCDF, as DSSTNE writes networks"
    SUFFIXES = (".nc",)
    TAKES = ("features",)

    @staticmethod
    def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("netCDF4", "dsstne"):
            from widenet.dsstne.model_import import import_model as run
        return run(
            path,
            out,
            data=options.data,
            features=options.features,
            fields=options.fields,
            overwrite=options.overwrite,
            say=options.say,
        )
