"""The values of a layer's units for the examples of a batch."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.predict.blocks import in_blocks, num_examples
from widenet.predict.tiles import Tiles


@torch.no_grad()
def layer_values(network: Network, fields: Mapping[str, Values], layer: str) -> Iterator[Tensor]:
    """Yield the values of a layer's units, float32 [E, T], in order of units.

    A hidden layer is one piece; an output comes tile by tile. Every process must take all pieces.
    """
    num = num_examples(fields)
    if layer not in network.outputs:
        activity = network.forward(network.prepare(in_blocks(network, fields), None), None)
        yield activity.values[layer][:num]
        return
    tiles = Tiles.of_batch(network, fields, layer)
    output, total_E1, shards = tiles.output, tiles.total(), tiles.shards
    for start, stop in tiles.cut(0):
        first = start * shards.count
        piece_ET = torch.empty(num, min(stop * shards.count, shards.width) - first, device=network.device)
        for shard in range(shards.count):
            into_ET, own = piece_ET[:, shard :: shards.count], None
            if shard in output.weight.parts:
                own = tiles.scores(tiles.logits(shard, start, start + into_ET.shape[1]), total_E1)
            shape = num, into_ET.shape[1]
            into_ET.copy_(output.exchange.fetch(shard, own, shape, network.device, output.where))
        yield piece_ET
