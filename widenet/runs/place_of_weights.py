"""Where wide weights lie: on the device, in the host's memory, or in a file on a disk."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from widenet.errors import OptionError
from widenet.model.storage import HostMemory, Scratch, Store
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, check_room_on_disk
from widenet.plan.job import Job, WeightsIn
from widenet.plan.numbers import amount
from widenet.plan.streaming import NAMES, elsewhere_bytes
from widenet.plan.work import streamed_bytes
from widenet.runs.documents import path_of
from widenet.runs.run_arguments import LoadArguments, TrainArguments
from widenet.stores.uri import shown
from widenet.training.saved_facts import in_8_bits


def check_place(arguments: TrainArguments, device: torch.device) -> None:
    """Raise OptionError if a device cannot have its weights where they are asked for."""
    if arguments.scratch is not None and arguments.weights_in != "disk":
        raise OptionError("is for weights_in='disk'", option="scratch")
    if arguments.weights_in == "disk" and device.type != "cpu":
        raise OptionError('must be "device" or "host" on CUDA', option="weights_in", value="disk")


def chosen(job: Job, asked: WeightsIn | None, store: Store | None) -> Iterator[str]:
    """Yield what a user should know of the place of wide weights.

    Args:
        job: The training.
        asked: The place that the user has named; None: the plan has chosen one.
        store: The file or the host's memory where they lie.
    """
    if isinstance(store, Scratch) and store.is_cached:
        yield (
            f"The file system of {store.folder} reads and writes only through the system's cache, so that"
            " steps may take longer. Name a folder on another disk with `scratch`."
        )
    if asked is not None or job.weights_in == "device":
        return
    held = amount(elsewhere_bytes(job, 0))
    read, written = (amount(size) for size in streamed_bytes(job, 0))
    moved = f"a step copies {read} to the device and {written} back"
    if job.weights_in == "disk":
        moved = f"a step reads {read} and writes {written}"
    yield (
        f"{NAMES[job.weights_in]}: memory has no room for {held} of wide weights and optimizer state, so"
        f" {moved} in each process. `weights_in='device'` refuses instead."
    )


def check_scratch(job: Job, arguments: TrainArguments, out: Path, exchange: Exchange) -> None:
    """Raise in every process unless the folder for wide weights has room and takes a file."""
    folder = folder_of(arguments, out)
    if arguments.scratch is not None:
        by_all(exchange, lambda: Scratch(folder), "scratch")
    check_room_on_disk(job, folder, exchange)


def elsewhere(job: Job, folder: Path, device: torch.device, exchange: Exchange) -> Store | None:
    """Make the file in a folder or the host's memory for wide weights; None if the device has them."""
    match job.weights_in:
        case "disk":
            return by_all(exchange, lambda: Scratch(folder), "scratch")
        case "host":
            return HostMemory(device)
    return None


def folder_of(arguments: TrainArguments, out: Path) -> Path:
    """Return the folder of the file for wide weights: the run directory unless another is named."""
    return out if arguments.scratch is None else path_of("scratch", arguments.scratch)


def device_of(arguments: LoadArguments, facts: Mapping[str, Any]) -> str | None:
    """Return the kind of device that is asked for; a CPU for a quantized run.

    Raises:
        OptionError: Another device is asked for such a run.
    """
    if not in_8_bits(facts):
        return arguments.device
    if arguments.device not in (None, "cpu"):
        rule = f"must be cpu for {shown(arguments.run)}, whose weights are in 8 bits"
        raise OptionError(rule, option="device", value=arguments.device)
    return "cpu"
