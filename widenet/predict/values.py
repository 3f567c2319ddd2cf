"""The values of a layer's units for the examples of a batch."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.plan.tiles import searched_tiles
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
    num, shards = len(tiles.direct_EH), tiles.shards
    for start, stop in searched_tiles(shards.size(0), num * shards.count, network.device.type):
        first = start * shards.count
        piece_ET = torch.empty(num, min(stop * shards.count, shards.width) - first, device=network.device)
        for shard in range(shards.count):
            into_ET, own = piece_ET[:, shard :: shards.count], None
            if shard in output.weight.parts:
                own = tiles.scores(tiles.logits(shard, start, start + into_ET.shape[1]), total_E1)
            shape = num, into_ET.shape[1]
            into_ET.copy_(output.exchange.fetch(shard, own, shape, network.device, output.where))
        yield piece_ET
