"""Computes norms and histograms of a network's weights, and of the gradients and activations of a step.

A bin holds the numbers of one sign and one exponent. So its edges depend on no number, and counts add up to
the same integers over any division of a weight.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from widenet.kernels import RowGradient
from widenet.kernels.fixed_point import from_fixed, peaks_of, scales_for, to_fixed
from widenet.model.network import Network
from widenet.model.wide_weight import WHOLE, WideWeight
from widenet.plan.tiles import blocks
from widenet.training.histogram_log import LOWEST, Histogram
from widenet.training.update import Update

_PIECE_NUMBERS = {"cpu": 2**16, "cuda": 2**21}
"""Numbers that are counted together: on a CPU few enough for a core's cache."""

_EXPONENTS = 256
"""Stored exponents of a float32."""

_MANTISSA_BITS = 23

Tally = tuple[Tensor, Tensor]
"""Counts by sign and stored exponent, negative numbers first, float64 [2 * _EXPONENTS]; the sum of squares,
float64 [1].
"""


def of_weights(network: Network) -> dict[str, Histogram]:
    """Return the histogram of every trained weight; all processes must call this.

    Weights on a disk or in the host's memory pass in blocks.
    """
    names = [
        name for name, wide in network.wide.items() if wide.trained and network.layout.weights[name].numbers
    ]
    wide = _of_shards(network, names, lambda name, shard: network.wide[name].parts[shard].blocks())
    trunk = {name: [weight.tensor] for name, weight in network.trunk.items() if weight.trained}
    return wide | _of_copies(network, trunk)


def of_gradients(network: Network, update: Update) -> dict[str, Histogram]:
    """Return the histograms of a step's gradients; all processes must call this.

    These are gradients of the loss, without penalties, and before `gradient_norm_limit` shortens them. Of a
    weight whose rows a batch touches, they are those of the touched rows. The gradient of a weight that an
    output multiplies with is known only tile by tile and is left out.
    """
    names = [
        name
        for name in network.wide
        if (name in update.rows or name in update.split) and name not in update.stepped
    ]

    def of_shard(name: str, shard: int) -> Iterator[Tensor]:
        if name in update.split:
            return _row_blocks(update.split[name][shard])
        return _scaled(
            _touched_blocks(network.wide[name], update.rows[name], shard), network.share_of_gradient(name)
        )

    def of_piece(name: str, shard: int) -> Iterable[Tensor]:
        return [
            gradient
            for part, gradient in network.pieces.cut(shard, update.pieces[shard])
            if part.stretch.weight == name
        ]

    trunk = {
        name: _scaled([weight.tensor.grad], network.share_of_gradient(name))
        for name, weight in network.trunk.items()
        if weight.tensor.grad is not None
    }
    divided = _of_shards(network, [*network.pieces.weights], of_piece) if update.pieces else {}
    return _of_shards(network, names, of_shard) | divided | _of_copies(network, trunk)


def of_activations(network: Network, values: Mapping[str, Tensor]) -> dict[str, Histogram]:
    """Return the histograms of the hidden layers' values in a step, where the step has them whole."""
    hidden = [layer.name for layer in network.spec.hidden if layer.name in values]
    return _of_copies(network, {name: [values[name]] for name in hidden})


def _of_shards(
    network: Network, names: Sequence[str], blocks_of: Callable[[str, int], Iterable[Tensor]]
) -> dict[str, Histogram]:
    """Return the histograms of tensors whose rows are cut into shards."""
    if not names:
        return {}

    def of_shard(shard: int) -> Tally:
        tallies = [_tally(blocks_of(name, shard), network.device) for name in names]
        counts, squares = zip(*tallies, strict=True)
        return torch.stack(counts), torch.stack(squares)

    terms = network.exchange.each(of_shard)
    counts, squares = network.exchange.start_sum(
        [own for own, _ in terms], [own for _, own in terms], where="histograms"
    ).result()
    return {name: _histogram((counts[place], squares[place])) for place, name in enumerate(names)}


def _of_copies(network: Network, tensors: Mapping[str, Iterable[Tensor]]) -> dict[str, Histogram]:
    """Return the histograms of tensors of which every process has the whole."""
    return {name: _histogram(_tally(pieces, network.device)) for name, pieces in tensors.items()}


def _row_blocks(rows_RH: Tensor) -> Iterator[Tensor]:
    for start, stop in blocks(len(rows_RH), rows_RH.shape[1], rows_RH.device.type):
        yield rows_RH[start:stop]


def _touched_blocks(weight: WideWeight, by_shard: Mapping[int, RowGradient], shard: int) -> Iterator[Tensor]:
    """Yield the gradients of a shard's touched rows, a block at a time."""
    if WHOLE in by_shard:
        own, first = by_shard[WHOLE], weight.first_row(shard)
        edges = torch.tensor([first, first + weight.shards.room], device=own.features_U.device)
        low, high = torch.searchsorted(own.features_U, edges).tolist()
    else:
        own = by_shard[shard]
        low, high = 0, len(own)
    for start, stop in blocks(high - low, own.gradient_EH.shape[1], own.gradient_EH.device.type):
        yield own.rows(low + start, low + stop)


def _scaled(pieces: Iterable[Tensor], share: float) -> Iterator[Tensor]:
    return (piece if share == 1 else piece * share for piece in pieces)


def _tally(tensors: Iterable[Tensor], device: torch.device) -> Tally:
    """Count float32 tensors and add up their squares, some numbers at a time."""
    counts = torch.zeros(2 * _EXPONENTS, dtype=torch.int64, device=device)
    squares = torch.zeros(1, dtype=torch.float64, device=device)
    for tensor in tensors:
        for piece in torch.split(tensor.detach().flatten(), _PIECE_NUMBERS[device.type]):
            if len(piece):
                signed = (piece.view(torch.int32) >> _MANTISSA_BITS) + _EXPONENTS
                counts += torch.bincount(signed, minlength=2 * _EXPONENTS)
                squares += _square_sum(piece)
    return counts.double(), squares


def _square_sum(piece: Tensor) -> Tensor:
    """Return the sum of squares, float64 [1]: the same bits in every order of the numbers.

    Each square is truncated as a term of `exact_sum`.
    """
    squares = piece.double().square()[None]
    peaks = peaks_of(squares)
    scales = scales_for(peaks, squares.shape[1])
    total = to_fixed(squares, scales).sum(dim=1, keepdim=True)
    return from_fixed(total, scales, peaks, torch.float64)[0]


def _histogram(tally: Tally) -> Histogram:
    counts, squares = [int(count) for count in tally[0].tolist()], float(tally[1])
    # The sign is the highest bit, so that the exponents of negative numbers ascend as well.
    negative, positive = counts[:_EXPONENTS], counts[_EXPONENTS:]
    zeros = negative[0] + positive[0]
    used = [place for place in range(1, _EXPONENTS) if negative[place] or positive[place]]
    first, last = (used[0], used[-1] + 1) if used else (1, 1)
    return Histogram(
        norm=math.sqrt(squares) if math.isfinite(squares) else None,
        numbers=sum(counts),
        zeros=zeros,
        lowest=LOWEST + first - 1,
        negative=negative[first:last],
        positive=positive[first:last],
    )
