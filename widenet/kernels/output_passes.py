"""Passes over the tiles of an output by the native library: products, slopes and the optimizer's steps.

Logits are float32 [E, T] without the biases, and slopes overwrite them. One call takes a tile, or all tiles
of a shard: threads that sweep different shards never wait for each other's Python. A sweep needs
`product_routine`, and has the bits of its tiles and of torch's products.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from widenet.kernels.native import Packed, call, check_dtype, packed, product_routine
from widenet.kernels.optimizer_steps import TileStep

_LINE = 16
"""float32 numbers in a cache line."""


@dataclass(frozen=True)
class Entries:
    """The targets in a tile, in order of units, then examples.

    Attributes:
        examples_Z: int64.
        units_Z: Units of the shard, int64.
        first: First unit of the tile.
    """

    examples_Z: Tensor
    units_Z: Tensor
    first: int = 0

    def __post_init__(self) -> None:
        check_dtype(torch.int64, self.examples_Z, self.units_Z)

    def within(self, span: slice, first: int) -> "Entries":
        """Return the entries of a tile that begins at unit `first`, which are at `span` among these."""
        return Entries(self.examples_Z[span], self.units_Z[span], first)


@dataclass(frozen=True)
class SlopeNumbers:
    """What turns logits into slopes.

    Attributes:
        kind: The activation.
        of_target_Z: For a sigmoid the targets' values, float32 (None: ones); for a softmax their pulls.
        one_E: For a sigmoid the loss weights of targets, float32; for a softmax the logarithm of the
            denominators.
        other_E: For a sigmoid the loss weights of other units, float32; for a softmax each example's sum of
            pulls.
    """

    kind: Literal["sigmoid", "softmax"]
    of_target_Z: Tensor | None
    one_E: Tensor
    other_E: Tensor

    def within(self, span: slice) -> "SlopeNumbers":
        """Return the numbers of a tile, whose targets are at `span` among these."""
        return self if self.of_target_Z is None else replace(self, of_target_Z=self.of_target_Z[span])

    def arguments(self) -> tuple[int, Packed]:
        """Return whether the activation is a softmax, and the library's structure."""
        check_dtype(torch.float32, self.of_target_Z, self.one_E, self.other_E)
        return int(self.kind == "softmax"), packed(self.of_target_Z, self.one_E, self.other_E)


@dataclass(frozen=True)
class ShardTiles:
    """The tiles of a shard, and the targets in them.

    Attributes:
        direct_EH: The incoming vectors, float32, contiguous.
        weight_RH: The units' weights, float32, contiguous.
        bias_R: Their biases, float32; zeros if there are none.
        starts: First unit of each tile, then R, int64.
        edges: First entry of each tile, then the number of entries, int64.
        entries: The shard's targets.
        length_R: Lengths by which products divide the units' weights, float32; None if by none.
        half: Whether products take operands rounded to bfloat16; `direct_EH` is rounded already.
        first: Number of the first of these tiles among all of the shard.
    """

    direct_EH: Tensor
    weight_RH: Tensor
    bias_R: Tensor
    starts: Tensor
    edges: Tensor
    entries: Entries
    length_R: Tensor | None = None
    half: bool = False
    first: int = 0

    def part(self, first: int, last: int) -> "ShardTiles":
        """Return the tiles [first, last) alone."""
        if first == 0 and last == len(self.starts) - 1:
            return self
        starts, edges = self.starts[first : last + 1], self.edges[first : last + 1]
        return replace(self, starts=starts, edges=edges, first=self.first + first)

    def packed(self) -> Packed:
        """Return the library's structure."""
        check_dtype(torch.float32, self.direct_EH, self.weight_RH, self.length_R, self.bias_R)
        return packed(
            product_routine(),
            self.direct_EH,
            *self.direct_EH.shape,
            self.weight_RH,
            self.length_R,
            self.bias_R,
            self.starts,
            self.edges,
            len(self.starts) - 1,
            self.entries.examples_Z,
            self.entries.units_Z,
            self.first,
            int(self.half),
        )


@dataclass(frozen=True)
class SteppedTensor:
    """What an optimizer's step moves in a sweep: a shard's weights or its biases.

    Attributes:
        numbers: The weights, float32 [R, H], or the biases, float32 [R].
        states: Their states, at most two, of the same shape.
        step: The step.
    """

    numbers: Tensor
    states: Sequence[Tensor]
    step: TileStep


def kept_numbers(num_examples: int, starts: Tensor) -> int:
    """Return how many numbers hold the logits of all tiles, each beginning at a cache line."""
    return kept_place(num_examples, int(starts[-1]), len(starts) - 1)


def kept_place(count: int, start: int, index: int) -> int:
    """Return where the logits of a tile begin among those that are kept: at a cache line, as any tensor does.

    MKL sums in another order if an operand is not aligned.
    """
    return ((count * start + _LINE - 1) // _LINE + index) * _LINE


def tile_slopes(
    logits_ET: Tensor, bias_T: Tensor | None, entries: Entries, numbers: SlopeNumbers
) -> tuple[float, Tensor]:
    """Turn a tile's logits into slopes; return the loss, and the slopes' sums over examples, float32 [T].

    Under a sigmoid, the loss is the weighted cross-entropy; targets above zero have the loss weight `one_E`,
    all other units `other_E`. Under a softmax, the slopes are p * `other_E` less the targets' pulls, and the
    loss is 0.
    """
    sum_T = logits_ET.new_zeros(logits_ET.shape[1])
    is_softmax, given = numbers.arguments()
    loss = _double(0.0)
    call("tile_pass", is_softmax, *_tile(logits_ET, bias_T, entries), given, sum_T, loss)
    return loss.item(), sum_T


def add_tile_softmax_sums(
    logits_ET: Tensor, bias_T: Tensor | None, entries: Entries, z_Z: Tensor, peak_E: Tensor, total_E: Tensor
) -> None:
    """Write the targets' logits into z_Z, and add the tile, which does not change, to the running sums.

    The sums are the largest logit so far, `peak_E` float32, and the sum so far of exp(z - peak),
    `total_E` float64; both change in place.
    """
    call("tile_softmax_sums", *_tile(logits_ET, bias_T, entries), z_Z, peak_E, total_E)


def add_softmax_sums(
    shard: ShardTiles, kept: Tensor | None, z_Z: Tensor, peak_E: Tensor, total_E: Tensor
) -> None:
    """Add a shard to the running sums of a softmax. See `add_tile_softmax_sums`.

    `kept` receives the logits of all tiles, float32 [`kept_numbers`].
    """
    call("sweep_softmax_sums", shard.packed(), kept, z_Z, peak_E, total_E)


def update(
    shard: ShardTiles,
    kept: Tensor | None,
    numbers: SlopeNumbers,
    gradient_EH: Tensor,
    weight: SteppedTensor,
    bias: SteppedTensor | None,
    loss: float = 0.0,
) -> float:
    """Make the step of a shard; return the loss. See `tile_slopes`.

    Args:
        shard: The tiles.
        kept: The logits of `add_softmax_sums`, which slopes overwrite; None if they are not kept.
        numbers: What turns logits into slopes.
        gradient_EH: Receives the gradient to the incoming vectors.
        weight: The weights.
        bias: The biases; None if the shard has none.
        loss: That of the tiles before these, which the result includes.
    """
    stepped = [
        packed(None, None, None, 0, None, None)
        if each is None
        else each.step.stepped(each.numbers, each.states)
        for each in (weight, bias)
    ]
    (is_softmax, given), total = numbers.arguments(), _double(loss)
    call("sweep_updates", shard.packed(), is_softmax, kept, given, gradient_EH, *stepped, total)
    return total.item()


def make_slopes(
    shard: ShardTiles,
    kept: Tensor | None,
    has_logits: bool,
    numbers: SlopeNumbers,
    bias_gradient_R: Tensor,
    gradient_RH: Tensor | None,
    gradient_EH: Tensor,
    loss: float = 0.0,
) -> float:
    """Turn logits into slopes for weights that are updated later; return the loss.

    Args:
        shard: The tiles.
        kept: Room for the slopes of all tiles, float32 [`kept_numbers`]; None if each pass makes them again.
        has_logits: Whether the logits are kept already.
        numbers: What turns logits into slopes.
        bias_gradient_R: Zeros; receives the sums of the slopes over examples, float32.
        gradient_RH: Receives the gradient to the weights, float32, at once; None if `fill_gradients` makes it
            later, from the slopes.
        gradient_EH: Receives the gradient to the incoming vectors, float32.
        loss: That of the tiles before these, which the result includes.
    """
    (is_softmax, given), total = numbers.arguments(), _double(loss)
    gradients = bias_gradient_R, gradient_RH, gradient_EH
    call("sweep_slopes", shard.packed(), is_softmax, kept, int(has_logits), given, *gradients, total)
    return total.item()


def fill_gradients(
    shard: ShardTiles, kept: Tensor | None, numbers: SlopeNumbers, gradient_RH: Tensor
) -> None:
    """Write the gradient to the tiles' weights, float32 [R, H], R their units, after `make_slopes`.

    It is that of operands of products: of directions, if products divide the weights by their lengths.
    """
    is_softmax, given = numbers.arguments()
    call("sweep_gradients", shard.packed(), is_softmax, kept, given, gradient_RH)


def _double(number: float) -> Tensor:
    return torch.tensor([number], dtype=torch.float64)


def _tile(
    logits_ET: Tensor, bias_T: Tensor | None, entries: Entries
) -> tuple[Tensor, int, int, Tensor, int, Tensor, Tensor, int]:
    """Return the arguments of a tile."""
    examples, units = logits_ET.shape
    bias = logits_ET.new_zeros(units) if bias_T is None else bias_T
    targets = entries.first, entries.examples_Z, entries.units_Z, len(entries.units_Z)
    return logits_ET, examples, units, bias, *targets
