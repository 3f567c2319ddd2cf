"""The passes of a wide output in Triton with the products inside, over all shards that a process holds.

A pass takes one tile of every shard in one launch. The logits are never in memory: the first pass writes
exp(z - peak) in the precision of the operands, where `peak` is the largest logit of `COLUMNS` units, and the
last pass turns it into the gradient in place. A program multiplies the gradient to the weight of its units
and makes the optimizer's step at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.devices import sent
from widenet.kernels.exchange import Pending
from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.model.fused_tiles import FusedPasses, formula_of
from widenet.model.layers.output import WideOutput
from widenet.model.output_step import OutputStep, RowWise
from widenet.model.part import Part
from widenet.model.row_sum import RowSum, over_shards
from widenet.model.wide_weight import WHOLE

if TYPE_CHECKING:
    from widenet.kernels.triton.span import Span
    from widenet.kernels.triton.steps import Steps
    from widenet.kernels.triton.target_deltas import Entries

_EVEN = 64
"""Operands in bfloat16 have a multiple of this many numbers in a row, so that all loads are aligned."""
_EVEN_TF32 = 4
"""Operands in float32 have a multiple of this many."""


def takes(step: OutputStep) -> bool:
    """Return whether these passes compute a step: one with rounded operands and a plain weight of its own."""
    output, spec = step.output, step.output.spec
    is_plain = spec.cosine is None and not spec.weightless and output.features is None
    return isinstance(step.passes, FusedPasses) and is_plain and (output.half or output.tf32)


@dataclass
class _Tile:
    """The tile of the same number in all shards of a lot.

    Attributes:
        number: Its number.
        span: Its place.
        first_block: Its first block of columns among those of all tiles.
        operand: The units' vectors as operands, and their rows from shard to shard and first row; None unless
            kept.
        shares_EC: exp(z - peak) if kept.
    """

    number: int
    span: "Span"
    first_block: int
    operand: tuple[Tensor, tuple[int, int]] | None = None
    shares_EC: Tensor | None = None


@dataclass
class _Lot:
    """Some shards in one allocation.

    Attributes:
        shards: Their numbers.
        weight: Their weight and its state.
        bias_R: Their biases, or None.
        room: Rows from one shard to the next.
        bounds: Start and stop of the tiles, if the weight lies in the host's memory; it is then one shard's.
        tiles: Their tiles.
        entries: Their targets, with logits.
        values_Z: Values of the targets, float32, or None.
        peaks_SBE: Under a softmax, the largest logit of every block of columns.
    """

    shards: list[int]
    weight: Part
    bias_R: Tensor | None
    room: int
    bounds: list[tuple[int, int]] = field(default_factory=list)
    tiles: list[_Tile] = field(default_factory=list)
    entries: "Entries | None" = None
    values_Z: Tensor | None = None
    peaks_SBE: Tensor | None = None

    def at_hand(self, updates: bool) -> Iterator[_Tile]:
        """Yield the tiles in order, each with its rows on the device."""
        with self.weight.sweep(updates) as sweep:
            for tile in self.tiles:
                if tile.number < len(self.bounds):
                    sweep.at(*self.bounds[tile.number])
                yield tile

    def rows(self, tile: _Tile) -> tuple[Tensor, list[Tensor]]:
        """Return weight and states that hold a tile's rows: those of its window, or all."""
        if self.weight.host is None:
            return self.weight.weight, [*self.weight.state.values()]
        if tile.number >= len(self.bounds):  # another shard has a tile more
            none = torch.empty(0, self.weight.weight.shape[1], device=self.weight.host.device)
            return none, [none for _ in self.weight.state]
        weight_TH, state = self.weight.rows(*self.bounds[tile.number])
        return weight_TH, [*state.values()]

    def span_of_rows(self, tile: _Tile) -> "Span":
        """Return a tile's place among `rows`."""
        if self.weight.host is None:
            return tile.span
        return replace(tile.span, room=len(self.rows(tile)[0]), start=0)


class FusedOutput:
    """A step of an output; see `takes`."""

    def __init__(self, step: OutputStep) -> None:
        self.step, self.output, device = step, step.output, step.direct_EH.device
        self.direct_EK = self._even(step.direct_EH)
        self.num_blocks, tiles = _cut(step.tiles)
        self.sizes = sent(torch.tensor([sizes for sizes, *_ in tiles], dtype=torch.int32), device)
        self.lots = list(_lots(self.output))
        for lot in self.lots:
            lot.bounds = [] if lot.weight.host is None else [*step.tiles[lot.shards[0]]]
            lot.tiles = [self._tile(lot, number, *tile[1:]) for number, tile in enumerate(tiles)]
            self._take_targets(lot)

    def _tile(self, lot: _Lot, number: int, start: int, width: int, first_block: int) -> _Tile:
        from widenet.kernels.triton.span import Span

        sizes_S = self.sizes[number, lot.shards[0] : lot.shards[-1] + 1]
        return _Tile(number, Span(sizes_S, len(lot.shards), width, lot.room, start), first_block)

    def run(self, bias_sink: Callable[[int, Tensor], None], steps: "Steps") -> Pending[list[Tensor]]:
        """Start the loss float64 [] and the gradient float32 [E, H]; make the step of the weight.

        Args:
            bias_sink: See `GradientSinks.bias`.
            steps: The optimizer's steps.
        """
        exchange, where, rows = self.output.exchange, self.output.where, self.step.rows
        if rows is not None:
            sums = [row_sum for lot in self.lots for row_sum in self._statistics(lot)]
            rows.total_E = over_shards(sums, exchange, where)
            pulls = [pulls_E for lot in self.lots for pulls_E in self._pulls(lot, rows)]
            rows.coupling_E = exact_sum(exchange.gather(pulls, where)).float()
        losses, gradients = zip(*[self._sweep(lot, bias_sink, steps) for lot in self.lots], strict=True)
        return exchange.start_sum(_joined(losses), _joined(gradients), where=where)

    def _columns(self, columns: int) -> int:
        """Return the numbers in a row of operands, K, of vectors with so many."""
        multiple = _EVEN if self.output.half else _EVEN_TF32
        return -(-columns // multiple) * multiple

    def _even(self, direct_EH: Tensor) -> Tensor:
        """Return the incoming vectors as operands, with zeros beyond H."""
        columns = direct_EH.shape[1]
        is_whole = direct_EH.stride() == (columns, 1)  # torch calls one row of a wider matrix contiguous, too
        if is_whole and not self.output.half and self._columns(columns) == columns:
            return direct_EH
        return self._filled(direct_EH[None], len(direct_EH))

    def _operand(self, lot: _Lot, tile: _Tile) -> tuple[Tensor, tuple[int, int]]:
        """Return a tile's vectors as operands, their rows from one shard to the next, and the first row."""
        if tile.operand is not None:
            return tile.operand
        weight_RH, span = lot.weight.weight, tile.span
        if lot.weight.host is not None:
            weight_RH, span = lot.rows(tile)[0], lot.span_of_rows(tile)
        columns, taken = weight_RH.shape[1], min(span.width, span.room - span.start)
        if not self.output.half and self._columns(columns) == columns:
            return weight_RH, (span.room, span.start)
        rows_SRH = weight_RH.view(span.num_shards, span.room, columns)
        return self._filled(rows_SRH[:, span.start : span.start + taken], span.width), (span.width, 0)

    def _filled(self, vectors_SRH: Tensor, rows: int) -> Tensor:
        """Return the vectors of each shard as operands, [S * rows, K], with zeros beyond R and H."""
        num_shards, taken, columns = vectors_SRH.shape
        dtype = torch.bfloat16 if self.output.half else torch.float32
        operand_SRK = vectors_SRH.new_empty(num_shards, rows, self._columns(columns), dtype=dtype)
        operand_SRK[:, :taken, :columns] = vectors_SRH
        if taken < rows:
            operand_SRK[:, taken:] = 0
        if columns < operand_SRK.shape[2]:
            operand_SRK[:, :, columns:] = 0
        return operand_SRK.flatten(0, 1)

    def _take_targets(self, lot: _Lot) -> None:
        """Compute the logits of a lot's targets."""
        from widenet.kernels.triton.target_deltas import Entries
        from widenet.kernels.triton.target_products import target_products

        weight_RH, bias_R = lot.weight.weight, lot.bias_R
        own = self.step.targets.joined(lot.shards, lot.room)
        lot.values_Z, places_Z = own.values_Z, own.units_Z
        if lot.weight.host is not None:
            host_U, places_Z = torch.unique(own.host_Z, return_inverse=True)
            weight_RH = lot.weight.host.brought(weight_RH, host_U)
            places_Z = sent(places_Z, weight_RH.device)
            bias_R = None if bias_R is None else bias_R.index_select(0, sent(host_U, weight_RH.device))
        logits_Z = target_products(self.direct_EK, weight_RH, bias_R, own.examples_Z, places_Z)
        lot.entries = Entries(own.examples_Z, own.units_Z, logits_Z)

    def _statistics(self, lot: _Lot) -> list[RowSum]:
        """Return the divisors' parts of a lot's shards; keep the shares if there is room."""
        from widenet.kernels.triton.softmax_merge import softmax_merge

        shape = len(lot.shards), self.num_blocks, self.step.num_examples
        lot.peaks_SBE = torch.empty(shape, device=self.direct_EK.device)
        sums_SBE = torch.empty_like(lot.peaks_SBE)
        for tile in lot.at_hand(updates=False):
            operand = self._operand(lot, tile)
            shares_EC = self._shares(lot, tile, operand, sums_SBE, self.step.keeps)
            if self.step.keeps:
                tile.shares_EC = shares_EC
            stays = self.output.half or (operand[0] is lot.weight.weight)  # a window does not
            if self.step.keeps and stays and operand[0].shape[1] <= self.step.num_examples:
                tile.operand = operand  # with the shares no larger than float32 logits, which have room
        peak_SE, sum_SE = softmax_merge(lot.peaks_SBE, sums_SBE)
        return [RowSum("softmax", *sums) for sums in zip(peak_SE, sum_SE, strict=True)]

    def _shares(
        self,
        lot: _Lot,
        tile: _Tile,
        operand: tuple[Tensor, tuple[int, int]],
        sums_SBE: Tensor,
        is_wanted: bool = True,
    ) -> Tensor | None:
        """Compute a tile's shares exp(z - peak), their peaks and their sums."""
        from widenet.kernels.triton.output_products import softmax_products

        assert lot.peaks_SBE is not None
        shares_EC = self._matrix(tile) if is_wanted else None
        products = self.direct_EK, *operand, lot.bias_R, tile.span
        softmax_products(*products, lot.peaks_SBE, sums_SBE, tile.first_block, shares_EC)
        return shares_EC

    def _matrix(self, tile: _Tile) -> Tensor:
        """Return room for a tile of operands, [E, C]."""
        shape = self.step.num_examples, tile.span.columns
        return torch.empty(shape, dtype=self.direct_EK.dtype, device=self.direct_EK.device)

    def _pulls(self, lot: _Lot, rows: RowWise) -> list[Tensor]:
        """Store loss and pull of a lot's targets; return the sums of each shard's pulls, float64 [E] each."""
        step, entries = self.step, lot.entries
        assert entries is not None
        examples_Z = entries.examples_Z
        values_Z = torch.ones_like(entries.logits_Z) if lot.values_Z is None else lot.values_Z
        log_p_Z = entries.logits_Z - rows.total_E[examples_Z]
        share_Z = values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
        value_Z, pull_Z = step.loss.pulls(log_p_Z, values_Z, share_Z)
        weight_Z = step.target_weight_E[examples_Z]
        first = lot.shards[0]
        rows.pulls[first], rows.losses[first] = pull_Z * weight_Z, value_Z * weight_Z
        groups_Z = entries.rows_Z // max(lot.room, 1) * step.num_examples + examples_Z
        num_groups = len(lot.shards) * step.num_examples
        # Sums are scaled for as many terms in any process.
        num_targets = sum(step.targets.num_entries(shard) for shard in range(len(step.tiles)))
        pulls = sum_by(rows.pulls[first].double(), groups_Z, num_groups, num_targets)
        return list(pulls.view(len(lot.shards), -1))

    def _sweep(
        self, lot: _Lot, bias_sink: Callable[[int, Tensor], None], steps: "Steps"
    ) -> tuple[Tensor, Tensor]:
        """Make the last pass over a lot; return its shards' losses [S] and gradients [S, E, H]."""
        from widenet.kernels.triton.hidden_gradient import add_hidden_gradient
        from widenet.kernels.triton.shard_losses import shard_losses

        weight, device = lot.weight, self.direct_EK.device
        shape = len(lot.shards), self.step.num_examples, weight.weight.shape[1]
        gradient_SEH = (torch.empty if lot.tiles else torch.zeros)(shape, device=device)
        # The step of all biases takes rows beyond a shard's units, too.
        bias_gradient_R = torch.zeros(len(weight.weight), device=device)
        losses = self._losses(len(lot.shards))
        for number, tile in enumerate(lot.at_hand(updates=True)):
            operand = self._operand(lot, tile)
            delta_EC = self._delta(lot, tile, operand, bias_gradient_R, losses)
            add_hidden_gradient(delta_EC, *operand, tile.span, gradient_SEH, number == 0)
            weight_RH, states = lot.rows(tile)
            steps.output(weight_RH, states, delta_EC, self.direct_EK, lot.span_of_rows(tile))
            tile.operand = tile.shares_EC = None
        bias = self.output.bias
        if bias is not None and bias.whole is not None and lot.bias_R is bias.whole.weight:
            bias_sink(WHOLE, bias_gradient_R)
        else:
            for place, shard in enumerate(lot.shards):
                first = place * lot.room
                bias_sink(shard, bias_gradient_R[first : first + self.output.weight.shards.size(shard)])
        return shard_losses(*losses), gradient_SEH

    def _losses(self, num_shards: int) -> tuple[Tensor | None, Tensor]:
        """Return room for losses by shard and block: of all units as if none were a target, and of targets.

        The first are float64 [S, B, P], for every part of the examples; a softmax has none. The others are
        float64 [S, B], what the targets add.
        """
        from widenet.kernels.triton.output_products import parts_of

        shape, device = (num_shards, self.num_blocks), self.direct_EK.device
        targets_SB = torch.empty(shape, dtype=torch.float64, device=device)
        if self.step.rows is not None:
            return None, targets_SB
        parts = parts_of(self.step.num_examples)
        return torch.empty(*shape, parts, dtype=torch.float64, device=device), targets_SB

    def _delta(
        self,
        lot: _Lot,
        tile: _Tile,
        operand: tuple[Tensor, tuple[int, int]],
        bias_gradient_R: Tensor,
        losses: tuple[Tensor | None, Tensor],
    ) -> Tensor:
        """Return the gradient to a tile's logits, and store the gradient to its biases and its losses."""
        from widenet.kernels.triton.output_products import slopes_of_products
        from widenet.kernels.triton.softmax_delta import softmax_delta
        from widenet.kernels.triton.target_deltas import softmax_target_deltas, unit_target_deltas

        step, rows, entries, (others_SBP, targets_SB) = self.step, self.step.rows, lot.entries, losses
        assert entries is not None
        place = bias_gradient_R, targets_SB, tile.first_block
        if rows is None:
            assert others_SBP is not None
            delta_EC, formula = self._matrix(tile), formula_of(step.output.spec, step.loss.slope_of_logit)
            products = self.direct_EK, *operand, lot.bias_R, tile.span
            others = step.other_weight_E, formula, others_SBP, tile.first_block
            sums_PC = slopes_of_products(*products, *others, delta_EC)
            weights = step.target_weight_E, step.other_weight_E
            unit = entries, lot.values_Z, *weights, formula, tile.span, sums_PC, delta_EC
            unit_target_deltas(*unit, *place)
            return delta_EC
        assert lot.peaks_SBE is not None
        shares_EC = tile.shares_EC
        if shares_EC is None:
            shares_EC = self._shares(lot, tile, operand, torch.empty_like(lot.peaks_SBE))
        assert shares_EC is not None
        divisors, first = (rows.total_E, rows.coupling_E), lot.shards[0]
        sums_PC = softmax_delta(shares_EC, lot.peaks_SBE, tile.first_block, *divisors, tile.span)
        targets = rows.losses[first], rows.pulls[first], *divisors
        softmax_target_deltas(entries, *targets, tile.span, sums_PC, shares_EC, *place)
        return shares_EC


def _cut(tiles: Sequence[Sequence[tuple[int, int]]]) -> tuple[int, list[tuple[list[int], int, int, int]]]:
    """Return the blocks of a shard, and each tile's size in every shard, start, width and first block.

    Args:
        tiles: Start and stop of each shard's tiles.
    """
    from widenet.kernels.triton.span import COLUMNS

    cut, num_blocks = [], 0
    for number in range(max(map(len, tiles))):
        of_shards = [own[number] if number < len(own) else (0, 0) for own in tiles]
        sizes = [stop - start for start, stop in of_shards]
        blocks = -(-max(sizes) // COLUMNS)
        start = max(start for start, _ in of_shards)
        cut.append((sizes, start, blocks * COLUMNS, num_blocks))
        num_blocks += blocks
    return num_blocks, cut


def _lots(output: WideOutput) -> Iterator[_Lot]:
    """Yield the shards of this process: all at once if they lie in one allocation on the device."""
    weight, bias = output.weight, output.bias
    if weight.whole is not None and weight.host is None:
        bias_R = None if bias is None or bias.whole is None else bias.whole.weight
        yield _Lot([*weight.parts], weight.whole, bias_R, weight.shards.room)
        return
    for shard, part in weight.parts.items():
        bias_R = None if bias is None else bias.parts[shard].weight
        yield _Lot([shard], part, bias_R, len(part.weight))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return tensors one after another."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
