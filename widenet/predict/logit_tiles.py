"""The logits and scores of an output for a batch, a tile of its units at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels import best_units
from widenet.kernels.table import runner
from widenet.model.activations import activate
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.operands import filled, filled_columns
from widenet.model.output_step import RowSum, divided, over_shards
from widenet.model.preparation import Values
from widenet.model.quantized_part import QuantizedPart
from widenet.model.sweep import in_turn
from widenet.plan.tiles import PREDICTED_ROWS, predicted_tiles
from widenet.predict.terms import terms_of
from widenet.sparse import SparseBatch
from widenet.spec.activations import ROW_WISE


def in_blocks(network: Network, fields: Mapping[str, Values]) -> dict[str, Values]:
    """Return fields with empty examples after theirs, up to a multiple of `Network.filled_rows`."""
    return {name: _filled(values, network.filled_rows) for name, values in fields.items()}


def _filled(values: Values, rows: int) -> Values:
    if not isinstance(values, SparseBatch):
        return filled(values, rows)
    missing = -values.num_examples % rows
    if not missing:
        return values
    ends = values.indptr[-1:].expand(missing)
    return SparseBatch(torch.cat([values.indptr, ends]), values.indices, values.values)


def num_examples(fields: Mapping[str, Values]) -> int:
    """Return the number of examples of a batch, E."""
    values = next(iter(fields.values()))
    return values.num_examples if isinstance(values, SparseBatch) else len(values)


class Tiles:
    """Computes logits and scores of an output for E examples, a tile of its units at a time.

    Attributes:
        output: The output.
        direct_EH: The vectors that enter it, with rows that fill up the last block.
        num: Number of examples without these rows.
        history: Features of the examples in the host's memory, for an output with terms of them.
        terms: These terms.
        rows: Examples that torch multiplies at once.
        multiplies: Whether logits are products of vectors.
        query: The examples, if the native library multiplies them.
    """

    def __init__(
        self, output: WideOutput, direct_EH: Tensor, num: int, history: SparseBatch | None = None
    ) -> None:
        self.output, self.direct_EH, self.num, self.history = output, direct_EH, num, history
        self.activation, self.shards = output.spec.activation, output.weight.shards
        self.rows, self.terms = PREDICTED_ROWS[direct_EH.device.type], terms_of(output, history)
        self.multiplies = output.features is None and not output.spec.weightless
        self.query: best_units.Query | None = None
        if self.multiplies and runner("ranking", direct_EH.device) == "native":
            self.query = best_units.Query.of(direct_EH[:num], output.weight.in_8_bits)

    @classmethod
    def of_batch(cls, network: Network, fields: Mapping[str, Values], name: str) -> "Tiles":
        """Return the tiles of an output for a batch."""
        activity = network.forward(network.prepare(in_blocks(network, fields), None), None)
        output, history = network.output_for(name, activity), None
        if output.spec.term is not None:
            values = fields[output.spec.field]
            assert isinstance(values, SparseBatch)
            history = values.to("cpu")
        return cls(output, network.direct(output, activity), num_examples(fields), history)

    def of_rows(self, rows: Tensor) -> "Tiles":
        """Return the tiles of some of the examples, int64 [R]."""
        output, history = self.output, None if self.history is None else self.history.take(rows.cpu())
        rows = rows.to(self.direct_EH.device)
        if output.features is not None:
            output = replace(output, features=output.features.take(rows))
        return Tiles(output, filled(self.direct_EH[rows], self.rows), len(rows), history)

    def cut(self, shard: int) -> Iterator[tuple[int, int]]:
        """The tiles of a shard, in order: start and stop within the shard."""
        columns = self.output.weight.columns
        return predicted_tiles(self.shards.size(shard), columns, self.direct_EH.device.type)

    def of(self, shard: int) -> Iterator[tuple[int, int]]:
        """As `cut`, while the weights come from where they lie."""
        with self.output.weight.parts[shard].sweep(updates=False) as sweep:
            for start, stop in self.cut(shard):
                sweep.at(start, stop)
                yield start, stop

    def logits(self, shard: int, start: int, stop: int) -> Tensor:
        """Return the logits of a tile of one of this process's shards, float32 [E, T]."""
        if self.query is not None:
            logits_ET = best_units.logits(self.query, self.units(shard, start, stop))
        else:
            tile, rows = self.output.tile(shard, start, stop), len(self.direct_EH)
            if self.multiplies:
                tile, rows = tile.wide_enough(), self.rows
            blocks = [tile.logits(block) for block in torch.split(self.direct_EH, max(rows, 1))]
            logits_ET = torch.cat(blocks)[: self.num, : stop - start].contiguous()
        for term in self.terms:
            term(logits_ET, shard, start)
        return logits_ET

    def units(self, shard: int, start: int, stop: int, summed: RowSum | None = None) -> best_units.Units:
        """Return the units [start, stop) of a shard for the native library, and a softmax's sum of them."""
        output = self.output
        part, factor_T, directions = output.weight.parts[shard], None, output.spec.cosine is not None
        if isinstance(part, QuantizedPart):
            factor_T = (part.for_directions if directions else part.scale_R)[start:stop]
            vector_TH, directions = part.weight[start:stop], False
        else:
            vector_TH = part.rows(start, stop)[0]
        bias_T = None if output.bias is None else output.bias.parts[shard].weight[start:stop]
        sums = () if summed is None else (summed.peak_E, summed.sum_E)
        numbers = self.shards.units(shard)[start:stop]
        return best_units.Units(vector_TH, numbers, factor_T, bias_T, directions, *sums)

    def are_whole(self, adds_up: bool) -> bool:
        """Return whether the native library can rank whole shards, and sum up the divisors on the way."""
        return (
            self.query is not None and not self.terms and (not adds_up or self.activation.kind == "softmax")
        )

    def scores(self, logits: Tensor, total_E1: Tensor | None) -> Tensor:
        """Activations of some logits [E, N]; `total_E1` is the result of `total`."""
        whole, columns = filled_columns(logits, self.rows), logits.shape[1]
        if total_E1 is None:
            return activate(self.activation, whole)[:, :columns]
        return divided(self.activation.kind, whole, total_E1)[:, :columns]

    def empty_sum(self) -> RowSum:
        """An empty sum for the divisors of the activations."""
        return RowSum.empty(self.activation.kind, self.num, self.direct_EH.device)

    def add_to(self, summed: RowSum, logits_ET: Tensor) -> None:
        """Add the logits of a tile to a sum."""
        if self.activation.kind == "softmax" and logits_ET.device.type == "cpu":
            best_units.add_softmax_sum(logits_ET, summed.peak_E, summed.sum_E)
        else:
            summed.add(logits_ET, self.rows)

    def total(self) -> Tensor | None:
        """Divisor of the activations, float32 [E, 1]; None if the activation is elementwise.

        Every process must call this.
        """
        if self.activation.kind not in ROW_WISE:
            return None
        with in_turn(self.output.weight.parts.values(), False):
            return self.summed(self.output.exchange.each(self._sum_of))

    def summed(self, sums: Sequence[RowSum]) -> Tensor:
        """As `total`, from the sums over each of this process's shards."""
        return over_shards(sums, self.output.exchange, self.output.where)[:, None]

    def _sum_of(self, shard: int) -> RowSum:
        summed = self.empty_sum()
        for start, stop in self.of(shard):
            self.add_to(summed, self.logits(shard, start, stop))
        return summed


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
