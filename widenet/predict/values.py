"""The values of a layer's units for every example of a batch, a piece at a time."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.predict.top_k import Tiles


@torch.no_grad()
def layer_values(network: Network, fields: Mapping[str, Values], layer: str) -> Iterator[Tensor]:
    """The values float32 [E, T] of a layer's units outside training, in order of units; of an output a tile
    of them at a time.

    Every process must take all of them.
    """
    activity = network.forward(network.prepare(fields, None), None)
    if layer not in network.outputs:
        yield activity.values[layer]
        return
    output = network.met(layer, activity)
    tiles = Tiles(output, network.direct(output, activity))
    total_E1 = tiles.total()
    for shard in range(tiles.shards.count):
        for start, stop in tiles.of(shard):
            shape = len(tiles.direct_EH), stop - start
            own = (
                tiles.scores(tiles.logits(shard, start, stop), total_E1)
                if shard in output.weight.parts
                else None
            )
            yield output.exchange.fetch(shard, own, shape, network.device, output.where)
