"""What all processes of a training must have in common before they compute."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from widenet.checkpoint import Checkpoint
from widenet.data.dataset import Dataset
from widenet.data.manifest import sha256_of
from widenet.model.exchange import Exchange
from widenet.parallel.agreement import Facts, check_agreement
from widenet.parallel.group import exchange_for, num_processes
from widenet.spec.document import Document
from widenet.training.environment import environment

SAME_FILES = "Let every process read the same files, then start again."
SAME_MACHINES = (
    "Start every process with the same data, documents and options, and on machines with the same software"
    ' and processors. Trainings with "bits": "portable" take processors that differ.'
)


def check_in_common(
    device: torch.device, documents: Sequence[Document], dataset: Dataset | None, more: Facts
) -> None:
    """Raise DisagreementError in every process of the group if they were given different work, or round in
    different ways.

    Every process must ask, after it has joined the group and before anything else travels: not even the
    number of shards is certain yet.

    Args:
        device: The device of this process.
        documents: The documents of the training or the run.
        dataset: The dataset of the training; None outside training.
        more: Other facts that must be equal.
    """
    if num_processes() == 1:
        return
    facts = {} if dataset is None else facts_of_dataset(dataset)
    for document in documents:
        facts.update(_leaves(json.loads(document.to_json()), f"{document.usual_name} "))
    facts.update(more)
    facts.update(environment(device))
    check_agreement(exchange_for(num_processes(), device), facts, SAME_MACHINES)


def check_same_dataset(exchange: Exchange, dataset: Dataset) -> None:
    """Raise DisagreementError in every process of an exchange if they have opened different datasets."""
    check_agreement(exchange, facts_of_dataset(dataset), SAME_FILES)


def facts_of_dataset(dataset: Dataset) -> dict[str, str]:
    """What makes two datasets the same: their examples, and the fields with their vocabularies."""
    manifest = dataset.manifest
    fields = [field.model_dump(mode="json") for field in manifest.fields.values()]
    names = {name: file.sha256 for name, file in manifest.files.items() if name not in manifest.example_files}
    return {"dataset digest": dataset.digest, "dataset fields": _digest([fields, names])}


def facts_of_checkpoint(checkpoint: Checkpoint | None) -> dict[str, str]:
    """What makes two checkpoints the same."""
    if checkpoint is None:
        return {"checkpoint": "none"}
    return {"checkpoint": checkpoint.path.name, "checkpoint digest": checkpoint.digest}


def facts_of_options(resume: bool, start: Path | None, cuda_graph: bool) -> dict[str, str]:
    """The options of a training that every process must be given. start: a run with whose weights it
    begins, told by their digest.
    """
    begins = "none"
    if start is not None:
        manifest = start / "model" / "manifest.json"
        begins = sha256_of(manifest) if manifest.is_file() else "missing"
    return {"resume": str(resume), "weights to start from": begins, "CUDA graph": str(cuda_graph)}


def _leaves(values: Any, place: str) -> Iterator[tuple[str, str]]:
    """The plain values within a JSON value, each with its place: ("training.json optimizer.kind", "adam")."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from _leaves(value, f"{place}{'' if place.endswith(' ') else '.'}{name}")
    elif isinstance(values, list) and values:
        for number, value in enumerate(values):
            yield from _leaves(value, f"{place}[{number}]")
    else:
        yield place, json.dumps(values)


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
