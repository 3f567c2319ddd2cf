"""Directories as earlier versions of widenet wrote them, or as other programs do."""

import json

import torch
from safetensors.torch import load_file, save_file

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
            json.dumps(
                {
                    **manifest,
                    "sha256": sha256_of_contents(
                        *(manifest[key] for key in ("format_version", "files", "facts"))
                    ),
                }
            )
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
            json.dumps(
                {
                    **manifest,
                    "sha256": sha256_of_contents(
                        *(manifest[key] for key in ("format_version", "files", "facts"))
                    ),
                }
            )
        )
    fields = json.loads((run / "fields.json").read_text())
    for record in fields.values():
        record.pop("vocabulary_sha256", None)
    (run / "fields.json").write_text(json.dumps(fields))
    return run


def checkpoint_of_whole_state(path):
    """Make a checkpoint as earlier versions wrote it of one of today's: no pieces, the trunk's file has all
    state.
    """
    trunk, pieces = load_file(path / "trunk.safetensors"), {}
    for file in sorted(path.glob("pieces.*")):
        for name, numbers in load_file(file).items():
            pieces.setdefault(name, []).append(numbers)
        file.unlink()
    for name, parts in pieces.items():
        weight, _, _ = name.removeprefix("state.").rpartition(".")
        trunk[name] = torch.cat(parts).view(trunk[f"weight.{weight}"].shape)
    save_file(trunk, path / "trunk.safetensors")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"] = {
        name: {"bytes": (path / name).stat().st_size, "sha256": sha256_of(path / name)}
        for name in manifest["files"]
        if not name.startswith("pieces.")
    }
    manifest["sha256"] = sha256_of_contents(*(manifest[key] for key in ("format_version", "files", "facts")))
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def checkpoint_of_ranges(path):
    """Make a checkpoint as earlier versions wrote it of one of today's, in format 1: shards of consecutive
    units.
    """
    groups = {}
    for file in sorted(path.glob("wide-*.safetensors")):
        groups.setdefault(file.name.split(".")[0], []).append(file)
    for files in groups.values():
        shards, count = [load_file(file) for file in files], len(files)
        rows = len(shards[0]["weight"])
        for key, first in shards[0].items():
            if key == "moved" and len(first) != rows:
                continue  # one number for each column, in every shard
            whole = torch.empty(sum(len(shard[key]) for shard in shards), *first.shape[1:], dtype=first.dtype)
            for number, shard in enumerate(shards):
                whole[number::count] = shard[key]
            for number, shard in enumerate(shards):
                edges = (len(whole) * edge // count for edge in (number, number + 1))
                shard[key] = whole[slice(*edges)].clone()
        for file, shard in zip(files, shards, strict=True):
            save_file(shard, file)
    manifest = json.loads((path / "manifest.json").read_text()) | {"format_version": 1}
    for name, file in manifest["files"].items():
        file |= {"bytes": (path / name).stat().st_size, "sha256": sha256_of(path / name)}
    manifest["sha256"] = sha256_of_contents(1, manifest["files"], manifest["facts"])
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path
