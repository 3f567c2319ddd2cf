"""The native library's passes of a training step over wide outputs, all shards at once.

An output's pass makes loss, gradients and the optimizer's steps. A softmax takes one pass over the logits:
each block of units leaves shares exp(z - peak), where `peak` is the largest logit so far, their sums, and the
sums of the units' vectors times them. When the divisors of all shards are known, the gradient to the incoming
vectors is these sums times one factor an example, less the pulls of the targets, and that of the weights is
the product of the shares with vectors scaled by such a factor. A sigmoid's slopes are known at once.

Every sum has one order, so no bit depends on threads, or on how many tiles are at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.native import Packed, call, check_dtypes, chosen_bits, multiplies_bfloat16, packed
from widenet.kernels.steps import packed_rows

_known = cache(call)
"""Facts of the library, which it tells once."""
_INSTRUCTIONS, _TILE_ROWS = (None, "avx512_bf16", "amx_bf16"), 32


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
    def pairs(self) -> int:
        """By which instructions products take pairs of bfloat16: 1, AVX512_BF16; 2, AMX; 0: none.

        Without them, products take rounded float32.
        """
        is_native = self.half and chosen_bits() == "native"
        return _INSTRUCTIONS.index(multiplies_bfloat16()) if is_native else 0

    def kept_numbers(self, num_units: int) -> int:
        """Return how many float32 numbers hold the shares or slopes of a shard's units.

        Pairs need room for whole tiles of units.
        """
        rows = num_units + _TILE_ROWS if self.pairs else num_units
        return rows * _known("kept_row", len(self.direct_EH), self.pairs)

    def num_blocks(self, num_units: int) -> int:
        """Return in how many blocks a shard's units are taken, each with a peak for every example."""
        tiles, rest = divmod(num_units, self.tile)
        of_tile, of_rest = (_known("blocks_of", len(self.direct_EH), units) for units in (self.tile, rest))
        return tiles * of_tile + of_rest

    def packed(self) -> Packed:
        """Return the library's structure."""
        check_dtypes(float32=(self.direct_EH, self.one_E, self.other_E))
        flags = self.kind == "softmax", chosen_bits() == "native", self.half
        vectors = self.direct_EH, *self.direct_EH.shape
        return packed(*vectors, self.tile, *map(int, flags), self.pairs, self.one_E, self.other_E)


@dataclass(frozen=True)
class Gradients:
    """What `finish` does with the gradients of a shard's units.

    Attributes:
        weight_step: The step of the weights, `OptimizerStep.packed`; None: none is made.
        bias_step: The step of the biases.
        touched: Gradients that other layers have for some of the rows, added before the step.
        weight_TH: Receives the gradients of the weights, float32; None: nobody asks for them.
        bias_T: Receives those of the biases.
    """

    weight_step: Packed | None = None
    bias_step: Packed | None = None
    touched: RowGradient | None = None
    weight_TH: Tensor | None = None
    bias_T: Tensor | None = None

    def packed(self) -> Packed:
        """Return the library's structure."""
        check_dtypes(float32=(self.weight_TH, self.bias_T))
        touched = None if self.touched is None else packed_rows(self.touched)
        return packed(self.weight_TH, self.bias_T, touched, self.weight_step, self.bias_step)


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
        of_target_Z: Their values, float32 (None: ones); of a softmax their pulls, once known.
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
        rooms = self.kept, self.scales, self.hidden_EH, self.peak_E, self.logits_Z, self.vectors_ZH
        integers = self.examples_Z, self.units_Z
        check_dtypes(float32=(*given, *rooms), float64=[self.total_E], int64=integers)
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


Pass = Literal["add_shares", "finish_hidden", "add_slopes", "finish"]
"""The library's passes.

add_shares: compute a softmax's shares, their sums and the targets' logits; `hidden_EH` has sums of vectors.
finish_hidden: turn these sums of vectors into the gradient to the incoming vectors.
add_slopes: compute a sigmoid's losses, weighted cross-entropies, and slopes; make steps as finish does.
    Targets above zero have the loss weight `one_E`, all other units `other_E`.
finish: compute the gradients of weights and biases, and make their steps or return them.
"""


def make_pass(
    name: Pass,
    batch: OutputBatch,
    shards: Sequence[OutputShard],
    num_threads: int,
    gradients: Sequence[Gradients] | None = None,
) -> None:
    """Make a pass over shards; "add_slopes" and "finish" take what is done with the gradients of each."""
    given = [] if gradients is None else [[own.packed() for own in gradients]]
    call(name, batch.packed(), [shard.structure for shard in shards], len(shards), num_threads, *given)
