"""The facts on which the bits of a training depend: software, processor, documents, data, options.

Processes compare them before they begin, and a training before it resumes.
"""

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from widenet.data.dataset import Dataset
from widenet.data.manifest import sha256_of
from widenet.kernels.native import instruction_sets, processor_facts, sources
from widenet.model.optimizers import is_compiled
from widenet.parallel.group import Facts, check_agreement, exchange_for, num_processes
from widenet.plan.machine import available_threads
from widenet.spec.document import Document, leaves_of
from widenet.training.checkpoint import Checkpoint
from widenet.training.state import ARITHMETIC

_BUILT_WITH = {"MKL": r"Math Kernel Library Version (\S+)", "oneDNN": r"MKL-DNN v(\S+)"}
"""Where torch's own words name the versions of its libraries."""
COMPILED, NOT_COMPILED = "compiled code", "none: torch alone"
"""The name of the entry of compiled code, and its value without any."""
_VERSION = metadata.version("widenet")


def environment(device: torch.device) -> dict[str, str]:
    """Return everything that decides how numbers round in a training on a device, as text by name.

    These are libraries with their versions, "none" for one that is absent, and the instruction sets that they
    use on this CPU.
    """
    maker = f"the native library {sources()[:12]}" if device.type == "cpu" else "Triton"
    built_with = torch.__config__.show()
    facts = {
        "device": device.type,
        COMPILED: f"by {maker}" if is_compiled(device.type) else NOT_COMPILED,
        "widenet": _VERSION,
        "arithmetic": str(ARITHMETIC),
        "torch": torch.__version__,
        "NumPy": np.__version__,
        **{name: "".join(re.findall(words, built_with)) or "none" for name, words in _BUILT_WITH.items()},
    }
    if device.type == "cuda":
        facts |= {"CUDA": str(torch.version.cuda), "GPU": torch.cuda.get_device_name(device)}
    return facts | {f"instruction set ({library})": value for library, value in instruction_sets().items()}


def changes(before: Mapping[str, str], device: torch.device) -> list[str]:
    """List what rounds in another way than in an earlier environment: "torch 2.11.0, before 2.8.0"."""
    return [
        f"{name} {value}, before {before[name]}"
        for name, value in environment(device).items()
        if name not in ("device", COMPILED, "widenet") and before.get(name, value) != value
    ]


def machine(dataset: Dataset, device: torch.device) -> dict[str, Any]:
    """Return the contents of machine.json for a training in this process: for people, not compared."""
    processor = processor_facts().get("model name", platform.machine())
    return {
        "widenet": _VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor,
        "processes": num_processes(),
        "threads": available_threads(),
        "data": str(dataset.path.resolve()),
    }


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
        leaves = leaves_of(document.model_dump(mode="json"))
        facts |= {f"{document.usual_name} {place}": json.dumps(value) for place, value in leaves}
    exchange = exchange_for(num_processes(), device)
    check_agreement(exchange, {**facts, **more, **environment(device)})


def facts_of_dataset(dataset: Dataset) -> dict[str, str]:
    """Return the facts that identify a dataset: its examples, and its fields with their vocabularies."""
    manifest = dataset.manifest
    fields = [field.model_dump(mode="json") for field in manifest.fields.values()]
    names = {name: file.sha256 for name, file in manifest.files.items() if name not in manifest.example_files}
    digest = hashlib.sha256(json.dumps([fields, names], sort_keys=True).encode()).hexdigest()
    return {"dataset digest": dataset.digest, "dataset fields": digest}


def facts_of_checkpoint(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the facts that identify a checkpoint."""
    return {"checkpoint": checkpoint.path.name, "checkpoint digest": checkpoint.digest}


def facts_of_options(resume: bool, start: Path | None) -> dict[str, str]:
    """Return the options of a training that must be equal in every process.

    Args:
        resume: Whether the training resumes.
        start: Run whose weights it begins with; identified by their digest.
    """
    manifest = None if start is None else start / "model" / "manifest.json"
    digest = sha256_of(manifest) if manifest is not None and manifest.is_file() else "none"
    return {"resume": str(resume), "weights to start from": digest}
