"""One step of a wide output on CUDA: the vendor's products, and one launch between two of them."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.bags import gather_sum
from widenet.kernels.fixed_point import Terms, exact_sum
from widenet.kernels.reference import LOWEST_PEAK
from widenet.model.layers.output import WideOutput, lengths, through_length
from widenet.model.losses import softmax_divisors
from widenet.model.operands import stacked_product
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.weight import WHOLE
from widenet.model.wide_loss import OutputStep, Update
from widenet.plan.tiles import SHARDS_AT_ONCE
from widenet.sparse import SparseBatch

if TYPE_CHECKING:
    from widenet.kernels.triton.output import TileTargets

_SPARE = 8
"""Columns after those of scaled vectors, of which the first gives the gradient of the biases: rows of
bfloat16 then begin at 16 bytes, as fast products need them.
"""


class Stack:
    """The same units of several shards, [S, T, H].

    Attributes:
        shards: The shards.
        places: Where they are among those of this process.
        start: The first unit.
        num_units: T; shards that have one unit less have a last one of zeros, which takes no part.
        vector: Their vectors, directions under "cosine". In a store they lack that last one.
        length: The lengths by which products divide the weights, under "cosine".
        bias: Their biases [S, T].
    """

    def __init__(self, output: WideOutput, shards: range, start: int, tile: int) -> None:
        self.output, self.shards, self.start = output, shards, start
        self.places = output.weight.places(shards)
        self.num_units = min(tile, output.known.size(0) - start)
        stop, bias = start + self.num_units, output.bias
        self.vector = output.weight.rows(shards, start, stop).weight
        self.length = None if output.spec.cosine is None else lengths(self.vector)
        if self.length is not None:
            self.vector = self.vector / self.length
        self.bias = None if bias is None else bias.rows(shards, start, stop).weight

    @cached_property
    def operand(self) -> Tensor:
        """The vectors of all T units as products take them."""
        operand, missing = self.output.operand(self.vector), self.num_units - self.vector.shape[1]
        return pad(operand, (0, 0, 0, missing)) if missing else operand


class TritonStep(OutputStep):
    """A softmax or a sigmoid on CUDA: tiles of several shards, and one launch between two products.

    What is kept of a tile are shares, as of `SoftmaxStep`, or slopes. Their product with the incoming vectors
    and a column of factors is the gradient of weights and biases.
    """

    def run(self, update: Update | None) -> tuple[Terms, Terms]:
        """See `OutputStep.run`."""
        output, is_softmax, joined = self.output, self.output.is_closed, self.targets.joined
        assert joined is not None
        self._joined, most = joined, output.known.size(0)
        self.bias_SR, hidden_SEH = self._zeros(most), self._zeros(*self.direct_EH.shape)
        self._total_SE = self._zeros(self.num_examples, dtype=torch.float64)
        spare = 0 if output.bias is None else _SPARE
        if is_softmax:
            self._peak_SE = self._zeros(self.num_examples).fill_(LOWEST_PEAK)
            self._peak_NSE = self._peak_SE.new_empty(-(-most // self.tile_units), *self._peak_SE.shape)
            self._target_Z = self._peak_SE.new_empty(joined.num_entries)
            self._scaled_EW = self.direct_EH.new_empty(0, self.direct_EH.shape[1] + spare)
        else:
            self._scaled_EW = pad(self.direct_EH, (0, spare), value=1.0)
        for stack in self._stacks(update is not None and not is_softmax):
            numbers = self._of_logits(stack, hidden_SEH)
            stacked_product(numbers, stack.operand, hidden_SEH[stack.places])
            if update is not None and not is_softmax:
                self._move(stack, numbers, *update)
            elif self.keeps and update is not None:
                self.kept[stack.shards.start, stack.start] = numbers
            elif self.keeps:
                own = zip(stack.shards, torch.split(numbers, 1), strict=True)
                self.kept |= {(shard, stack.start): kept for shard, kept in own}
        loss_S = self._take_pulls(hidden_SEH) if is_softmax else self._total_SE.sum(dim=1)
        if update is None:
            return loss_S, hidden_SEH
        for stack in self._stacks(True) if is_softmax else ():
            self._move(stack, self.kept.pop((stack.shards.start, stack.start), None), *update)
        if output.bias is not None:
            held = range(min(self.sizes), max(self.sizes) + 1)
            output.bias.update_tile(held, 0, most, self.bias_SR, *update)
        return loss_S, hidden_SEH

    def gradient(self, shard: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `OutputStep.gradient`."""
        stack, columns = self._stack(range(shard, shard + 1), start), self.direct_EH.shape[1]
        gradient_TW = self._product(stack, self.kept.pop((shard, start), None))[0, : stop - start]
        is_frozen, bias = not self.output.weight.trained, self.output.bias
        bias_T = self.bias_SR[0, start:stop] if bias is None else gradient_TW[:, columns]
        return gradient_TW.new_zeros(0) if is_frozen else gradient_TW[:, :columns], bias_T

    def _stack(self, shards: range, start: int) -> Stack:
        return Stack(self.output, shards, start, self.tile_units)

    def _stacks(self, updates: bool) -> Iterator[Stack]:
        """Yield all tiles, of several shards unless rows lie in a store."""
        if self.output.weight.store is not None:
            for shard in self.sizes:
                for start, _ in self.spans(shard, 0, updates):
                    yield self._stack(range(shard, shard + 1), start)
            return
        first, end = min(self.sizes), max(self.sizes) + 1
        for start in range(0, self.output.known.size(0), self.tile_units):
            for shard in range(first, end, SHARDS_AT_ONCE):
                yield self._stack(range(shard, min(shard + SHARDS_AT_ONCE, end)), start)

    def _targets(self, stack: Stack) -> "TileTargets":
        from widenet.kernels.triton.output import TileTargets

        first, room = stack.places.start, self.output.weight.shards.room
        whole = [shard for shard in stack.shards if self.sizes[shard] >= stack.start + stack.num_units]
        indptr = self._joined.indptr[first * self.num_examples :]
        return TileTargets(indptr, self._joined.indices, first * room + stack.start, room, len(whole))

    def _of_logits(self, stack: Stack, hidden_SEH: Tensor, again: bool = False) -> Tensor:
        """Return the shares or slopes of a tile, [S, E, T].

        Args:
            stack: The tile.
            hidden_SEH: Sums of vectors, scaled to the largest logits so far.
            again: Whether sums have them already.
        """
        from widenet.kernels.triton.output import tile_shares, tile_slopes

        places, half, targets = stack.places, self.output.half, self._targets(stack)
        given = stacked_product(self.direct_EH, stack.operand.mT), stack.bias
        total_SE = torch.zeros_like(self._total_SE[places]) if again else self._total_SE[places]
        if not self.output.is_closed:
            return tile_slopes(*given, total_SE, self.weight_E, self._joined.values, targets, half)
        peaks = self._peak_NSE[stack.start // self.tile_units, places]
        sums = peaks if again else self._peak_SE[places], total_SE, hidden_SEH[places]
        return tile_shares(*given, *sums, peaks, self._target_Z, targets, half)

    def _take_pulls(self, hidden_SEH: Tensor) -> Tensor:
        """Return the loss of each shard once all shares are known; finish the hidden vectors' gradient."""
        output, joined, size = self.output, self._joined, (len(self.sizes), self.num_examples)
        both_S2E = torch.stack((self._peak_SE.double(), self._total_SE), dim=1)
        self._divisor_E = softmax_divisors([*both_S2E], output.exchange, output.where)
        examples_Z = joined.example_of_entry() % self.num_examples
        given = self._divisor_E, self._target_Z, examples_Z, joined.values_or_ones()
        value_Z, self._pull_Z = self.pulled(*given)
        numbers_Z = torch.arange(joined.num_entries, device=value_Z.device)
        both_Z2 = torch.stack((value_Z, self._pull_Z), dim=1)
        loss_SE, pull_SE = gather_sum(SparseBatch(joined.indptr, numbers_Z), both_Z2).double().T
        pulls = output.exchange.gather([*pull_SE.reshape(size)], output.where)
        self._coupling_E = exact_sum(pulls).float()
        hidden_SEH.mul_((torch.exp(self._peak_SE - self._divisor_E) * self._coupling_E)[..., None])
        first = 0
        for place, shard in enumerate(self.sizes):
            part = self.targets.parts[shard]
            own = slice(first, first + len(part.units_Z))
            bag = SparseBatch(part.indptr, numbers_Z[: len(part.units_Z)], self._pull_Z[own])
            hidden_SEH[place] -= gather_sum(bag, output.vectors(WHOLE, joined.indices[own]).float())
            first = own.stop
        loss_S: Tensor = loss_SE.reshape(size).sum(dim=1)
        return loss_S

    def _product(self, stack: Stack, kept: Tensor | None) -> Tensor:
        """Return the gradients of weights and, in the first of further columns, of biases [S, T, W]."""
        from widenet.kernels.triton.output import take_pulls

        numbers = self._of_logits(stack, self._peak_SE[..., None, :0], again=True) if kept is None else kept
        scaled = self._scaled_EW
        if self.output.is_closed:
            peaks = self._peak_NSE[stack.start // self.tile_units, stack.places]
            sums = self._divisor_E, self._coupling_E
            given = peaks, *sums, self.direct_EH, self._pull_Z, self._targets(stack)
            scaled = take_pulls(numbers, scaled.shape[1], *given)
        gradient = stacked_product(numbers.mT, scaled)[:, : stack.vector.shape[1]]
        if stack.length is not None:
            through_length(gradient[..., : self.direct_EH.shape[1]], stack.vector, stack.length)
        return gradient

    def _move(self, stack: Stack, kept: Tensor | None, rule: Optimizer, step: StepNumbers) -> None:
        """Make the step of the weights of a tile."""
        weight, gradient, sums = self.output.weight, self._product(stack, kept), None
        stop, columns = stack.start + gradient.shape[1], self.direct_EH.shape[1]
        if self.output.bias is not None:
            sums = self.bias_SR[stack.places, stack.start : stop]
        if weight.trained:
            weight.update_tile(stack.shards, stack.start, stop, gradient, rule, step, sums)
        elif sums is not None:
            sums.copy_(gradient[..., columns])
