"""What decides how numbers round in this process: versions of libraries, instruction sets, and who
compiles.
"""

import re
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
import torch

from widenet.kernels.compiled import can_compile
from widenet.kernels.processor import instruction_sets
from widenet.training.arithmetic import ARITHMETIC
from widenet.training.optimizers import is_compiled

_MKL = re.compile(r"Math Kernel Library Version (\S+)")
_ONEDNN = re.compile(r"MKL-DNN v(\S+)")
COMPILED, NOT_COMPILED = "compiled code", "none: torch alone"
"""The name of the compiler's entry, and its value where there is none."""


def versions(device: torch.device) -> dict[str, str]:
    """The versions of the libraries that compute on a device, by name; "none" where one is absent."""
    told = torch.__config__.show()
    found = {
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "Numba": version("numba") if can_compile() else "none",
        "MKL": _first(_MKL, told),
        "oneDNN": _first(_ONEDNN, told),
    }
    return found if device.type == "cpu" else {**found, "CUDA": str(torch.version.cuda)}


def processors(device: torch.device) -> dict[str, str]:
    """The instruction sets of this process's CPU by library, and its GPU where it computes on one."""
    found = {f"instruction set ({library})": value for library, value in instruction_sets().items()}
    return found if device.type == "cpu" else {**found, "GPU": torch.cuda.get_device_name(device)}


def environment(device: torch.device) -> dict[str, str]:
    """All that decides how numbers round in a training on a device, as plain text by name."""
    compiler = "Numba" if device.type == "cpu" else "Triton"
    return {
        "device": device.type,
        COMPILED: f"by {compiler}" if is_compiled(device.type) else NOT_COMPILED,
        "widenet": version("widenet"),
        "arithmetic": str(ARITHMETIC),
        **versions(device),
        **processors(device),
    }


def changes(before: Mapping[str, str], device: torch.device) -> list[str]:
    """How the libraries and processors differ here from those of an earlier environment, as in "torch
    2.11.0, before 2.8.0".
    """
    now = {**versions(device), **processors(device)}
    return [
        f"{name} {value}, before {before[name]}"
        for name, value in now.items()
        if before.get(name, value) != value
    ]


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return "none" if found is None else found[1]
