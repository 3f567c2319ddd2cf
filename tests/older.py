"""Directories as earlier versions of widenet wrote them, or as other programs do."""

import json

from widenet.checkpoint import sha256_of_contents
from widenet.data.manifest import sha256_of
from widenet.training.run_directory import RECORDED


def dataset_of_format_1(folder, **keys):
    """Make a dataset of format 1 of one of today's: no digests of blocks, no checksum of the manifest; those
    of files are right.

    keys: what the manifest says besides, `fields__items__width=4` for a value further down.
    """
    path = folder / "dataset.json"
    document = json.loads(path.read_text()) | {"format_version": 1}
    document.pop("sha256", None)
    for name, file in document["files"].items():
        file.pop("blocks", None)
        file |= {"size_bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
    for key, value in keys.items():
        *way, last = key.split("__")
        place = document
        for step in way:
            place = place[step]
        place[last] = value
    path.write_text(json.dumps(document))
    return folder


NEUTRAL = (
    "shared_gradient",
    "optimizer",
    "dropout_form",
    "after_dropout",
    "pull_outside",
    "floor",
    "step_offset",
)
"""The settings of documents that a dialect stood for."""


def run_with_dialect(run, dialect):
    """Make a run as earlier versions wrote it of one of today's: a dialect in place of neutral settings."""
    for name, more in (("network.json", {"dialect": dialect}), ("training.json", {})):
        values = json.loads((run / name).read_text())
        optimizer = values.get("optimizer") if name == "training.json" else None
        values = _without(values, NEUTRAL) | more
        if optimizer is not None:
            values["optimizer"] = _without(optimizer, NEUTRAL)
        (run / name).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    for path in run.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        for name in ("network.json", "training.json"):
            manifest["facts"][RECORDED][name] = sha256_of(run / name)
        path.write_text(
            json.dumps({**manifest, "sha256": sha256_of_contents(manifest["files"], manifest["facts"])})
        )
    return run


def _without(values, keys):
    """Plain values without some keys, wherever they stand."""
    if isinstance(values, list):
        return [_without(value, keys) for value in values]
    if isinstance(values, dict):
        return {key: _without(value, keys) for key, value in values.items() if key not in keys}
    return values


def run_without_digests(run):
    """Make a run as earlier versions wrote it of one of today's: no digests of documents, fields and
    vocabularies.
    """
    for path in run.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest["facts"].pop(RECORDED, None)
        path.write_text(
            json.dumps({**manifest, "sha256": sha256_of_contents(manifest["files"], manifest["facts"])})
        )
    fields = json.loads((run / "fields.json").read_text())
    for record in fields.values():
        record.pop("vocabulary_sha256", None)
    (run / "fields.json").write_text(json.dumps(fields))
    return run
