"""A training that somebody writes on a page: its documents, checked, and its plan."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.manifest import FILE_NAME
from widenet.errors import DocumentError, FitError, WidenetError
from widenet.plan.job import Job
from widenet.plan.machine import available_memory, available_threads, seems_to_have_cuda
from widenet.runs.documents import documents
from widenet.serve.messages import RefusedError
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores.uri import is_uri
from widenet.training.check import check_training
from widenet.ui.known_runs import Known

KINDS: Mapping[str, type[Document]] = {"network": NetworkSpec, "training": TrainingSpec}
"""The two documents."""

_MOST_DATASETS, _MOST_PROCESSES = 1000, 1024


@dataclass(frozen=True)
class Draft:
    """What a page sends, of the right types and otherwise unchecked.

    Attributes:
        name: Name of the run.
        data: Path of the dataset, as `datasets` names it.
        texts: JSON text of each of `KINDS`.
        processes: Number of processes.
    """

    name: str
    data: str
    texts: Mapping[str, str]
    processes: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Draft":
        """Take it from plain values; raises RefusedError."""
        texts = {name: values.get(name) for name in ("name", "data", *KINDS)}
        processes = values.get("processes")
        if not all(isinstance(text, str) for text in texts.values()):
            raise RefusedError(422, "malformed", f"{', '.join(texts)} must be texts.")
        if type(processes) is not int or not 1 <= processes <= _MOST_PROCESSES:
            raise RefusedError(
                422, "out_of_bounds", f"processes must be a whole number from 1 to {_MOST_PROCESSES:,}."
            )
        named = {name: str(text) for name, text in texts.items()}
        return cls(named["name"], named["data"], {name: named[name] for name in KINDS}, processes)


@dataclass(frozen=True)
class Checked:
    """What there is to say about a draft.

    Attributes:
        mistakes: A sentence about each document that is wrong; "" stands for both together.
        job: The training; None with a mistake.
        device_bytes: Memory of each process; None: unknown.
        num_examples: Examples of the dataset.
    """

    mistakes: Mapping[str, str]
    job: Job | None = None
    device_bytes: int | None = None
    num_examples: int = 0


def check(draft: Draft, dataset: Dataset) -> Checked:
    """Check the documents of a draft as `widenet train` does, and plan it."""
    specs: dict[str, Any] = {}
    mistakes: dict[str, str] = {}
    for name, kind in KINDS.items():
        try:
            specs[name] = kind.parse(draft.texts[name], kind.usual_name)
        except DocumentError as error:
            mistakes[name] = str(error)
    if mistakes:
        return Checked(mistakes)
    device, number = ("cuda" if seems_to_have_cuda() else "cpu"), draft.processes
    try:
        job = Job.of(
            check_training(specs["network"], specs["training"], dataset),
            dataset.manifest.entries_per_example,
            dataset.num_examples,
            num_processes=number,
            device="cuda" if device == "cuda" else "cpu",
            num_threads=available_threads(number) if device == "cpu" else 1,
        )
    except WidenetError as error:
        return Checked({"": str(error)})
    available = available_memory() if device == "cpu" else None
    return Checked({}, job, available and available // number, dataset.num_examples)


def default_texts(dataset: Dataset) -> dict[str, str]:
    """Return the default documents of a dataset, without the values that every document has by default."""
    try:
        network, training = documents(None, None, dataset)
    except FitError:
        return {"network": '{\n  "layers": []\n}\n', "training": "{}\n"}
    return {"network": _text(network), "training": _text(training)}


def _text(document: Document) -> str:
    return (
        json.dumps(document.model_dump(mode="json", exclude_unset=True), indent=2, ensure_ascii=False) + "\n"
    )


def dataset_of(documents: Mapping[str, Any]) -> Path | None:
    """Return the local dataset that a run names; None without one."""
    data = documents.get("data")
    if not isinstance(data, str) or is_uri(data) or "\0" in data:
        return None
    return Path(data).resolve()


def datasets(known: Known, named: Path | None, folder: Path | None) -> dict[str, str]:
    """Return the datasets that a training may take: names by path.

    Args:
        known: The runs, whose datasets are among them if they are still there.
        named: A further dataset.
        folder: A folder with further datasets, at most two folders deep.
    """
    paths = [] if named is None else [named.resolve()]
    for run in known.runs.values():
        data = dataset_of(run.documents)
        if data is not None:
            paths.append(data)
    if folder is not None:
        for depth in ("*", "*/*"):
            paths += sorted(path.parent.resolve() for path in folder.glob(f"{depth}/{FILE_NAME}"))
    whole = [path for path in dict.fromkeys(paths) if (path / FILE_NAME).is_file()]
    return {str(path): path.name for path in whole[:_MOST_DATASETS]}
