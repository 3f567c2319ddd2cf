"""A copy of a network's weights and optimizer state in the memory of the machine, from which a checkpoint
is written while they change.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from widenet.checkpoint import TRUNK, replicas_of, wide_file
from widenet.model.network import Network


class Snapshot:
    """Memory for what this process writes into a checkpoint, made at the first `take` and kept.

    On CUDA it is pinned memory, to which the device copies by itself.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.files: dict[str, dict[str, Tensor]] = {}

    def take(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The tensors of every file of this process as they are now. They stay so until the next call."""
        network = self.network

        def copy(shard: int) -> None:
            for number, weight in enumerate(network.wide.values()):
                self._copy(wide_file(number, shard, weight.shards.count), weight.parts[shard].tensors())

        network.exchange.each(copy)
        if network.exchange.leads:
            self._copy(TRUNK, replicas_of(network))
        if network.device.type == "cuda":
            torch.cuda.current_stream(network.device).synchronize()
        return self.files

    def _copy(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        copies = self.files.setdefault(name, {})
        for key, tensor in tensors.items():
            if key not in copies or copies[key].shape != tensor.shape:
                copies[key] = _room_for(tensor)
            copies[key].copy_(tensor.detach(), non_blocking=True)


def _room_for(tensor: Tensor) -> Tensor:
    """Memory of a tensor's own layout, so that copying it is one pass in order."""
    room = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return room.pin_memory() if tensor.device.type == "cuda" else room
