"""The environment of a training: what decides how its numbers round, and where it runs."""

import platform
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from widenet.data.dataset import Dataset
from widenet.kernels.native import sources
from widenet.kernels.processor import instruction_sets
from widenet.model.optimizers import is_compiled
from widenet.parallel.group import num_processes
from widenet.plan.machine import available_threads
from widenet.training.state import ARITHMETIC

_MKL = re.compile(r"Math Kernel Library Version (\S+)")
_ONEDNN = re.compile(r"MKL-DNN v(\S+)")
_PROCESSOR = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
COMPILED, NOT_COMPILED = "compiled code", "none: torch alone"
"""The name of the entry of compiled code, and its value without any."""


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions of the libraries that compute on a device, by name; "none" if one is absent."""
    built_with = torch.__config__.show()
    numbers = {
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "MKL": _first(_MKL, built_with),
        "oneDNN": _first(_ONEDNN, built_with),
    }
    return numbers if device.type == "cpu" else {**numbers, "CUDA": str(torch.version.cuda)}


def processors(device: torch.device) -> dict[str, str]:
    """Return the instruction set that each library uses on this CPU, and the name of the GPU if any."""
    names = {f"instruction set ({library})": value for library, value in instruction_sets().items()}
    return names if device.type == "cpu" else {**names, "GPU": torch.cuda.get_device_name(device)}


def environment(device: torch.device) -> dict[str, str]:
    """Return everything that decides how numbers round in a training on a device, as text by name."""
    maker = f"the native library {sources()[:12]}" if device.type == "cpu" else "Triton"
    return {
        "device": device.type,
        COMPILED: f"by {maker}" if is_compiled(device.type) else NOT_COMPILED,
        "widenet": _version("widenet"),
        "arithmetic": str(ARITHMETIC),
        **versions(device),
        **processors(device),
    }


def changes(before: Mapping[str, str], device: torch.device) -> list[str]:
    """List what rounds in another way than in an earlier environment: "torch 2.11.0, before 2.8.0"."""
    now = {"arithmetic": str(ARITHMETIC), **versions(device), **processors(device)}
    return [
        f"{name} {value}, before {before[name]}"
        for name, value in now.items()
        if before.get(name, value) != value
    ]


def machine(dataset: Dataset, device: torch.device) -> dict[str, Any]:
    """Return the contents of machine.json for a training in this process: for people, not compared."""
    return {
        "widenet": _version("widenet"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "processes": num_processes(),
        "threads": available_threads(),
        "data": str(dataset.path.resolve()),
    }


def recorded_processes(facts: Mapping[str, Any]) -> int:
    """Return how many processes machine.json names; 1 if it names no such number."""
    number = facts.get("processes")
    return number if type(number) is int and number >= 1 else 1


@cache
def _version(distribution: str) -> str:
    """Return the version of an installed distribution; reading it takes milliseconds, and checkpoints ask."""
    return metadata.version(distribution)


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    if not cpuinfo.is_file():
        return platform.machine()
    model = _PROCESSOR.search(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    return model[1] if model else platform.machine()


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return "none" if match is None else match[1]
