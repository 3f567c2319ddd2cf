"""widenet's training step by two documents, with weights on a device or in its host's memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.steps.widenet_steps import steps_of
from widenet.model.storage import HostMemory, Range
from widenet.parallel.exchange import one_thread_an_operation
from widenet.parallel.group import exchange_for
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_EPOCHS = 10_000


class _Counted(HostMemory):
    """The host's memory, which counts the bytes that cross to the device and back."""

    to_device = to_host = 0

    def copy(self, rows: Tensor) -> Tensor:
        """See `HostMemory.copy`."""
        self.to_device += rows.nbytes
        return super().copy(rows)

    def sweep(
        self, tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range]
    ) -> Iterator[list[Tensor]]:
        """See `HostMemory.sweep`."""
        for copies in super().sweep(tensors, writes, ranges):
            self.to_host += writes * sum(own.nbytes for own in copies)
            yield copies

    def select(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """See `HostMemory.select`."""
        copies = super().select(tensor, rows_U)
        self.to_device += copies.nbytes
        return copies

    def put(self, tensors: Sequence[Tensor], rows_U: Tensor, copies: Sequence[Tensor]) -> None:
        """See `HostMemory.put`."""
        self.to_host += sum(own.nbytes for own in copies)
        super().put(tensors, rows_U, copies)


def train(
    folder: str,
    network: dict[str, Any],
    training: dict[str, Any],
    weights_in: str = "device",
    named_after: int = 0,
    device: str = "cpu",
) -> Callable[[int], dict[str, Any]]:
    """Return the steps of two documents, and with weights in the host's memory the bytes that cross in each.

    Args:
        folder: Folder of the data.
        network: The network document.
        training: The training document.
        weights_in: "device" or "host".
        named_after: Steps to make at once, after which the fingerprint is told.
        device: The device. A CPU is its own host.
    """
    spec = TrainingSpec.of({**training, "epochs": _EPOCHS})
    host = _Counted(torch.device(device)) if weights_in == "host" and device != "cpu" else None
    exchange = exchange_for(spec.shards, torch.device(device))
    own = steps_of(
        folder,
        NetworkSpec.of(network),
        spec,
        exchange,
        one_thread_an_operation,
        device,
        host,
        named_after,
    )
    if named_after:
        own(named_after)
    if host is None:
        return own

    def steps(number: int) -> dict[str, Any]:
        before = host.to_device, host.to_host
        facts = own(number)
        sent, back = (now - then for now, then in zip((host.to_device, host.to_host), before, strict=True))
        return {**facts, "to_device": sent / number, "to_host": back / number}

    return steps
