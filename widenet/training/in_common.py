"""Compares the processes of a group before they compute: same data, documents, options and rounding."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from widenet.data.dataset import Dataset
from widenet.data.manifest import sha256_of
from widenet.parallel.agreement import Facts, check_agreement
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import exchange_for, num_processes
from widenet.spec.document import Document
from widenet.training.checkpoint import Checkpoint
from widenet.training.environment import environment


def check_in_common(
    device: torch.device, documents: Sequence[Document], dataset: Dataset | None, more: Facts
) -> None:
    """Check that the processes of the group have the same work and round in the same way.

    All processes must call this, after joining the group and before any other collective: not even the number
    of shards is certain yet.

    Args:
        device: The device of this process.
        documents: The documents of the training or the run.
        dataset: The dataset of the training; None outside training.
        more: Other facts that must be equal.

    Raises:
        DisagreementError: They differ; all processes raise this.
    """
    if num_processes() == 1:
        return
    facts = {} if dataset is None else facts_of_dataset(dataset)
    for document in documents:
        facts.update(_leaves(json.loads(document.to_json()), f"{document.usual_name} "))
    facts.update(more)
    facts.update(environment(device))
    check_agreement(exchange_for(num_processes(), device), facts)


def check_same_dataset(exchange: Exchange, dataset: Dataset) -> None:
    """Raise DisagreementError in every process of an exchange if their datasets differ."""
    check_agreement(exchange, facts_of_dataset(dataset))


def facts_of_dataset(dataset: Dataset) -> dict[str, str]:
    """Return the facts that identify a dataset: its examples, and its fields with their vocabularies."""
    manifest = dataset.manifest
    fields = [field.model_dump(mode="json") for field in manifest.fields.values()]
    names = {name: file.sha256 for name, file in manifest.files.items() if name not in manifest.example_files}
    digest = hashlib.sha256(json.dumps([fields, names], sort_keys=True).encode()).hexdigest()
    return {"dataset digest": dataset.digest, "dataset fields": digest}


def facts_of_checkpoint(checkpoint: Checkpoint | None) -> dict[str, str]:
    """Return the facts that identify a checkpoint."""
    if checkpoint is None:
        return {"checkpoint": "none"}
    return {"checkpoint": checkpoint.path.name, "checkpoint digest": checkpoint.digest}


def facts_of_options(resume: bool, start: Path | None) -> dict[str, str]:
    """Return the options of a training that must be equal in every process.

    Args:
        resume: Whether the training resumes.
        start: Run whose weights it begins with; identified by their digest.
    """
    digest = "none"
    if start is not None:
        manifest = start / "model" / "manifest.json"
        digest = sha256_of(manifest) if manifest.is_file() else "missing"
    return {"resume": str(resume), "weights to start from": digest}


def _leaves(values: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the plain values inside a JSON value: ("training.json optimizer.kind", "adam")."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from _leaves(value, f"{place}{'' if place.endswith(' ') else '.'}{name}")
    elif isinstance(values, list) and values:
        for number, value in enumerate(values):
            yield from _leaves(value, f"{place}[{number}]")
    else:
        yield place, json.dumps(values)
