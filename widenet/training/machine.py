"""Where a training runs: versions, device, processes and the place of its data, for people to read."""

import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from widenet.data.dataset import Dataset
from widenet.parallel.group import num_processes
from widenet.plan.machine import available_threads

_PROCESSOR = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def machine(dataset: Dataset, device: torch.device) -> dict[str, Any]:
    """What machine.json says of a training of this process on a dataset."""
    return {
        "widenet": version("widenet"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "processes": num_processes(),
        "threads": available_threads(),
        "data": str(dataset.path.resolve()),
    }


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    found = (
        _PROCESSOR.search(cpuinfo.read_text(encoding="utf-8", errors="replace"))
        if cpuinfo.is_file()
        else None
    )
    return found[1] if found else platform.machine()
