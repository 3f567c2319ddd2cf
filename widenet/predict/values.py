"""The values of a layer's units for the examples of a batch."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.predict.top_k import Tiles


@torch.no_grad()
def layer_values(network: Network, fields: Mapping[str, Values], layer: str) -> Iterator[Tensor]:
    """Yield the values of a layer's units, float32 [E, T], in order of units.

    A hidden layer is one piece; an output comes tile by tile. Every process must take all pieces.
    """
    activity = network.forward(network.prepare(fields, None), None)
    if layer not in network.outputs:
        yield activity.values[layer]
        return
    output = network.output_for(layer, activity)
    tiles = Tiles(output, network.direct(output, activity))
    total_E1 = tiles.total()
    for shard in range(tiles.shards.count):
        for start, stop in tiles.of(shard):
            shape = len(tiles.direct_EH), stop - start
            own = None
            if shard in output.weight.parts:
                own = tiles.scores(tiles.logits(shard, start, stop), total_E1)
            yield output.exchange.fetch(shard, own, shape, network.device, output.where)
