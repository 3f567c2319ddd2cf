"""The directions of an output's vectors, gathered from all shards."""

import numpy as np
import torch

from widenet.model.network import Network


def directions(network: Network, output_name: str, units: np.ndarray) -> np.ndarray:
    """Return the vectors of some units of an output, divided by their lengths, float64 [..., H].

    All processes of the network must call this with the same units, int64 [...]; -1 gives zeros.
    """
    distinct, places = np.unique(units, return_inverse=True)
    weight = network.wide[network.layout.links[output_name, ""].weight]
    shards, device = weight.shards, network.device
    owners = [np.flatnonzero((distinct >= 0) & (distinct % shards.count == n)) for n in range(shards.count)]
    room = max(map(len, owners))

    def vectors(shard: int) -> torch.Tensor:
        rows = torch.from_numpy(distinct[owners[shard]] // shards.count).to(device)
        found = weight.select(shard, rows).detach().float()
        return torch.nn.functional.pad(found, (0, 0, 0, room - len(rows)))

    by_shard = network.exchange.gather(network.exchange.each(vectors), "vectors of candidates")
    gathered = np.zeros((len(distinct), by_shard[0].shape[1]))
    for owned, found in zip(owners, by_shard, strict=True):
        gathered[owned] = found[: len(owned)].cpu().numpy()
    lengths = np.sqrt((gathered**2).sum(axis=1, keepdims=True))
    gathered /= np.where(lengths > 0, lengths, 1.0)
    return gathered[places.reshape(units.shape)]
