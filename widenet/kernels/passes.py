"""The native library's passes of a training step: optimizer steps, and steps of wide outputs over all shards.

An output's pass makes loss, gradients and the optimizer's steps. A softmax takes one pass over the logits:
each block of units leaves shares exp(z - peak), where `peak` is the largest logit so far, their sums, and the
sums of the units' vectors times them. When the divisors of all shards are known, the gradient to the incoming
vectors is these sums times one factor an example, less the pulls of the targets, and that of the weights is
the product of the shares with vectors scaled by such a factor. A sigmoid's slopes are known at once.

Every sum has one order, so no bit depends on threads, or on how many tiles are at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Literal

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.native import Packed, call, check_dtype, chosen_bits, multiplies_bfloat16, packed

_KINDS = {
    "sgd": 0,
    "momentum": 1,
    "nesterov": 1,
    "adagrad": 2,
    "rmsprop": 2,
    "adadelta": 3,
    "adam": 4,
    "adamw": 4,
}
"""The library's number of each kind of optimizer."""
_NUM_CONSTANTS = 6
"""The most constants of an optimizer, which the library reads of each."""


@dataclass(frozen=True)
class Penalties:
    """Changes before an optimizer's own step: g = scale * g + l2 * w + l1 * sign(w), then w = keep * w."""

    scale: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    keep: float = 1.0


@dataclass(frozen=True)
class TileStep:
    """An optimizer's step, as the library makes it.

    Attributes:
        kind: Number of the kind of optimizer.
        penalties: Numbers of `Penalties`, float32.
        constants: `constants` of the optimizer's formula, float32 [6].
    """

    kind: int
    penalties: Tensor
    constants: Tensor

    @staticmethod
    def of(kind: str, penalties: Penalties, constants: Sequence[float]) -> "TileStep":
        """Return the step of a kind of optimizer."""
        assert len(constants) <= _NUM_CONSTANTS
        filled = [*constants, *[0.0] * (_NUM_CONSTANTS - len(constants))]
        numbers = penalties.scale, penalties.l2, penalties.l1, penalties.keep
        return TileStep(_KINDS[kind], _float32(*numbers), _float32(*filled))

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """Make the step of a contiguous weight, in place; gradient and states have its shape.

        May overwrite the gradient. The only state may also have one number for each row.
        """
        first, second = _two(weight, states)
        check_dtype(torch.float32, gradient)
        step = packed(*self.fields(weight, first))
        call("step_tile", step, weight.numel(), weight, gradient.contiguous(), first, second)

    def rows(self, weight_RH: Tensor, touched: RowGradient, states: Sequence[Tensor], fade_U: Tensor) -> None:
        """Make the step of the touched rows of a weight, in place.

        Args:
            weight_RH: The weight.
            touched: The rows and their gradient.
            states: The optimizer's states, float32 [R, H]; a single one may be [R, 1].
            fade_U: Factors on the states before the step, float32.
        """
        first, second = _two(weight_RH, states)
        check_dtype(torch.float32, touched.gradient_EH, touched.values_Z, fade_U)
        rows_U, indptr, examples_Z = (
            tensor.long().contiguous() for tensor in (touched.features_U, touched.indptr, touched.examples_Z)
        )
        gradient_EH = touched.gradient_EH.contiguous()
        weights = weight_RH.shape[1], weight_RH, first, second, gradient_EH
        entries = rows_U, len(rows_U), indptr, examples_Z, touched.values_Z, fade_U
        call("step_rows", packed(*self.fields(weight_RH, first)), *weights, *entries)

    def fields(self, weight: Tensor, state: Tensor | None) -> tuple[int, Tensor, Tensor, int]:
        """Return the fields of the library's structure, given a weight and its first state."""
        per = 1 if state is None else weight.numel() // max(state.numel(), 1)
        return self.kind, self.penalties, self.constants, max(per, 1)


@dataclass(frozen=True)
class Stepped:
    """What a step moves: a shard's weights or its biases.

    Attributes:
        numbers: The weights, float32 [R, H], or the biases, float32 [R].
        states: Their states, at most two, of the same shape; a single one may be [R, 1].
        step: The step.
    """

    numbers: Tensor
    states: Sequence[Tensor]
    step: TileStep

    def packed(self) -> Packed:
        """Return the library's structure."""
        first, second = _two(self.numbers, self.states)
        return packed(self.numbers, first, second, *self.step.fields(self.numbers, first))


def _two(numbers: Tensor, states: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """Return two states, or None in place of missing ones, after a check of their types."""
    check_dtype(torch.float32, numbers, *states)
    assert len(states) <= 2
    first = states[0] if states else None
    return first, states[1] if len(states) > 1 else None


@lru_cache(maxsize=64)
def _float32(*numbers: float) -> Tensor:
    """Return numbers as a float32 tensor; cached, since all tiles of a step need the same."""
    return torch.tensor(numbers, dtype=torch.float32)


@dataclass(frozen=True)
class OutputBatch:
    """A batch before an output.

    Attributes:
        kind: The activation.
        direct_EH: The vectors that meet the units', float32, contiguous.
        tile: Units of a tile; shards are taken from the first unit of a tile on.
        half: Whether products take operands rounded to bfloat16; `direct_EH` is rounded already.
        one_E: The loss weights of targets, float32; of a softmax the logarithms of the divisors, once known.
        other_E: The loss weights of other units, float32; of a softmax each example's sum of pulls.
    """

    kind: Literal["sigmoid", "softmax"]
    direct_EH: Tensor
    tile: int
    half: bool = False
    one_E: Tensor | None = None
    other_E: Tensor | None = None

    @property
    def pairs(self) -> bool:
        """Whether the processor multiplies pairs of bfloat16; else it multiplies rounded float32."""
        return self.half and chosen_bits() == "native" and multiplies_bfloat16()

    def kept_numbers(self, num_units: int) -> int:
        """Return how many float32 numbers hold the shares or slopes of a shard's units."""
        return num_units * _kept_row(len(self.direct_EH), self.pairs)

    def num_blocks(self, num_units: int) -> int:
        """Return in how many blocks a shard's units are taken, each with a peak for every example."""
        tiles, rest = divmod(num_units, self.tile)
        of_tile, of_rest = (_blocks_of(len(self.direct_EH), units) for units in (self.tile, rest))
        return tiles * of_tile + of_rest

    def packed(self) -> Packed:
        """Return the library's structure."""
        check_dtype(torch.float32, self.direct_EH, self.one_E, self.other_E)
        flags = self.kind == "softmax", chosen_bits() == "native", self.half, self.pairs
        vectors = self.direct_EH, *self.direct_EH.shape
        return packed(*vectors, self.tile, *map(int, flags), self.one_E, self.other_E)


@dataclass(frozen=True)
class Gradients:
    """What `finish` does with the gradients of a shard's units.

    Attributes:
        weight_step: The step of the weights; None: none is made.
        bias_step: The step of the biases.
        touched: Gradients that other layers have for some of the rows, added before the step.
        weight_TH: Receives the gradients of the weights, float32; None: nobody asks for them.
        bias_T: Receives those of the biases.
    """

    weight_step: Stepped | None = None
    bias_step: Stepped | None = None
    touched: RowGradient | None = None
    weight_TH: Tensor | None = None
    bias_T: Tensor | None = None

    def packed(self) -> Packed:
        """Return the library's structure."""
        check_dtype(torch.float32, self.weight_TH, self.bias_T)
        touched = None if self.touched is None else _packed_rows(self.touched)
        steps = [None if own is None else own.packed() for own in (self.weight_step, self.bias_step)]
        return packed(self.weight_TH, self.bias_T, touched, *steps)


@dataclass(frozen=True)
class OutputShard:
    """A shard of an output and its targets in order of units, then examples.

    Attributes:
        weight_RH: The units' weights, float32, contiguous.
        length_R: Receives the lengths by which products divide the weights, float32; None: by none.
        bias_R: The biases, float32; None: there are none.
        span: The units that are at hand; the first begins a tile.
        examples_Z: Examples of the targets, int64.
        units_Z: Their units, int64.
        of_target_Z: Their values, float32 (None: ones); of a softmax room for their pulls.
        kept: Room for the shares or slopes of all units, float32; see `OutputBatch.kept_numbers`. None: they
            are computed again.
        scales: Of a softmax, room for the peaks of all blocks, float32; see `OutputBatch.num_blocks`.
        hidden_EH: The gradient to the incoming vectors, float32, to which every pass over units adds.
        total_E: The sum so far of exp(z - peak), of a sigmoid the loss so far, float64.
        peak_E: Of a softmax, the largest logit so far, float32; -inf at first.
        logits_Z: Of a softmax, receives the targets' logits, float32.
        vectors_ZH: Receives their vectors, float32, if the weights leave memory between passes.
    """

    weight_RH: Tensor
    length_R: Tensor | None
    bias_R: Tensor | None
    span: tuple[int, int]
    examples_Z: Tensor
    units_Z: Tensor
    of_target_Z: Tensor | None
    kept: Tensor | None
    scales: Tensor | None
    hidden_EH: Tensor
    total_E: Tensor
    peak_E: Tensor | None = None
    logits_Z: Tensor | None = None
    vectors_ZH: Tensor | None = None

    def within(self, start: int, stop: int) -> "OutputShard":
        """Return the units [start, stop) alone."""
        return replace(self, span=(start, stop))

    @cached_property
    def structure(self) -> Packed:
        """The library's structure."""
        given = self.weight_RH, self.length_R, self.bias_R, self.of_target_Z
        check_dtype(torch.float32, *given, self.kept, self.scales, self.hidden_EH)
        check_dtype(torch.float32, self.peak_E, self.logits_Z, self.vectors_ZH)
        check_dtype(torch.float64, self.total_E)
        check_dtype(torch.int64, self.examples_Z, self.units_Z)
        return packed(
            *given[:3],
            *self.span,
            self.examples_Z,
            self.units_Z,
            len(self.units_Z),
            self.of_target_Z,
            self.kept,
            self.scales,
            self.hidden_EH,
            self.total_E,
            self.peak_E,
            self.logits_Z,
            self.vectors_ZH,
        )


def add_shares(batch: OutputBatch, shards: Sequence[OutputShard], num_threads: int) -> None:
    """Compute a softmax's shares, their sums and the targets' logits; `hidden_EH` has sums of vectors."""
    call("add_shares", *_packed(batch, shards), num_threads)


def finish_hidden(batch: OutputBatch, shards: Sequence[OutputShard], num_threads: int) -> None:
    """Turn the sums of vectors of `add_shares` into the gradient to the incoming vectors."""
    call("finish_hidden", *_packed(batch, shards), num_threads)


def add_slopes(
    batch: OutputBatch, shards: Sequence[OutputShard], num_threads: int, gradients: Sequence[Gradients]
) -> None:
    """Compute a sigmoid's losses, weighted cross-entropies, and slopes; then as `finish` if there are steps.

    Targets above zero have the loss weight `one_E`, all other units `other_E`.
    """
    call("add_slopes", *_packed(batch, shards), num_threads, [own.packed() for own in gradients])


def finish(
    batch: OutputBatch, shards: Sequence[OutputShard], num_threads: int, gradients: Sequence[Gradients]
) -> None:
    """Compute the gradients of weights and biases, and make their steps or return them."""
    call("finish", *_packed(batch, shards), num_threads, [own.packed() for own in gradients])


@cache
def _kept_row(num_examples: int, pairs: bool) -> int:
    return call("kept_row", num_examples, int(pairs))


@cache
def _blocks_of(num_examples: int, num_units: int) -> int:
    return call("blocks_of", num_examples, num_units)


def _packed(batch: OutputBatch, shards: Sequence[OutputShard]) -> tuple[Packed, list[Packed], int]:
    return batch.packed(), [shard.structure for shard in shards], len(shards)


def _packed_rows(touched: RowGradient) -> Packed:
    rows_U, indptr, examples_Z = (
        tensor.long().contiguous() for tensor in (touched.features_U, touched.indptr, touched.examples_Z)
    )
    check_dtype(torch.float32, touched.values_Z, touched.gradient_EH)
    vectors = touched.values_Z, touched.gradient_EH.contiguous()
    return packed(rows_U, len(rows_U), indptr, examples_Z, *vectors)
