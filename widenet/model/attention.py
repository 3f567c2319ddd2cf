"""Causal self-attention along sequences, and its gradient."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from widenet.kernels.table import runner
from widenet.model.positions import Positions


def attention(
    queries_NHC: Tensor,
    keys_NHC: Tensor,
    values_NHC: Tensor,
    distances_THC: Tensor | None,
    positions: Positions,
) -> Tensor:
    """Return what each position and head reads, [N, H, C]; differentiable by all tensors.

    This is the sum of the values at the position and at all earlier ones of its sequence, weighted by the
    softmax of query * (key + the vector of the distance) / sqrt(C). Sums over positions go from the position
    itself to the oldest one, so no number depends on other sequences.

    Args:
        queries_NHC: Queries of N positions and H heads, C numbers each.
        keys_NHC: Keys.
        values_NHC: Values.
        distances_THC: Vectors of the distances 0 to T - 1; None: zeros. No sequence has more positions.
        positions: The positions.
    """
    tensors: list[Any] = [queries_NHC, keys_NHC, values_NHC, distances_THC]
    if runner("attention", queries_NHC.device) == "triton":
        read: Tensor = _ByKernels.apply(*tensors, positions.starts, positions.times_N)  # type: ignore[no-untyped-call]
    else:
        read = _Attention.apply(*tensors, positions.sizes)  # type: ignore[no-untyped-call]
    return read


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries_NHC: Tensor,
        keys_NHC: Tensor,
        values_NHC: Tensor,
        distances_THC: Tensor | None,
        sizes: Sequence[int],
    ) -> Tensor:
        scale, device = queries_NHC.shape[2] ** -0.5, queries_NHC.device
        share_TNH = queries_NHC.new_full((len(sizes), *queries_NHC.shape[:2]), -torch.inf)
        largest_NH = queries_NHC.new_full(queries_NHC.shape[:2], -torch.inf)
        for back, first, earlier in _distances(sizes, device):
            keys_MHC = _keys(keys_NHC, earlier, distances_THC, back)
            share_TNH[back, first:] = _dot(queries_NHC[first:], keys_MHC) * scale
            largest_NH = torch.maximum(largest_NH, share_TNH[back])
        share_TNH = torch.exp(share_TNH - largest_NH)
        total_NH = torch.zeros_like(largest_NH)
        for share_NH in share_TNH:  # torch's sum over an axis has an order that depends on its length
            total_NH += share_NH
        share_TNH /= total_NH
        read_NHC = torch.zeros_like(queries_NHC)
        for back, first, earlier in _distances(sizes, device):
            read_NHC[first:] += share_TNH[back, first:, :, None] * values_NHC[earlier]
        ctx.sizes = sizes
        ctx.save_for_backward(queries_NHC, keys_NHC, values_NHC, distances_THC, share_TNH, read_NHC)
        return read_NHC

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        queries_NHC, keys_NHC, values_NHC, distances_THC, share_TNH, read_NHC = ctx.saved_tensors
        (gradient_NHC,) = gradients
        to_queries_NHC, to_keys_NHC, to_values_NHC = (torch.zeros_like(read_NHC) for _ in range(3))
        to_distances_THC = None if distances_THC is None else torch.zeros_like(distances_THC)
        mean_NH, scale = _dot(gradient_NHC, read_NHC), queries_NHC.shape[2] ** -0.5
        for back, first, earlier in _distances(ctx.sizes, queries_NHC.device):
            gradient_MHC, share_MH = gradient_NHC[first:], share_TNH[back, first:]
            to_share_MH = _dot(gradient_MHC, values_NHC[earlier])
            to_score_MH1 = (share_MH * (to_share_MH - mean_NH[first:]) * scale)[:, :, None]
            to_queries_NHC[first:] += to_score_MH1 * _keys(keys_NHC, earlier, distances_THC, back)
            to_key_MHC = to_score_MH1 * queries_NHC[first:]
            # At one distance no position is earlier than two others, so nothing is added twice.
            to_keys_NHC[earlier] += to_key_MHC
            to_values_NHC[earlier] += share_MH[:, :, None] * gradient_MHC
            if to_distances_THC is not None:
                to_distances_THC[back] = to_key_MHC.sum(dim=0)
        return to_queries_NHC, to_keys_NHC, to_values_NHC, to_distances_THC, None


class _ByKernels(torch.autograd.Function):
    """Triton's kernels of `_Attention`: they keep no shares, but compute them again."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        from widenet.kernels.triton.attention import Heads
        from widenet.kernels.triton.attention import attention as launched

        read_NHC, *sums = launched(Heads.of(*tensors))
        ctx.save_for_backward(*tensors, read_NHC, *sums)
        return read_NHC

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from widenet.kernels.triton.attention import (
            Heads,
            attention_distances,
            attention_keys,
            attention_queries,
        )

        *tensors, read_NHC, largest_NH, total_NH = ctx.saved_tensors
        heads, gradient_NHC, to_distances_THC = Heads.of(*tensors), gradients[0].contiguous(), None
        to_queries_NHC, mean_NH = attention_queries(heads, read_NHC, largest_NH, total_NH, gradient_NHC)
        sums = largest_NH, total_NH, mean_NH, gradient_NHC
        to_keys_NHC, to_values_NHC = attention_keys(heads, *sums)
        if heads.distances_THC is not None:
            to_distances_THC = attention_distances(heads, *sums)
        return to_queries_NHC, to_keys_NHC, to_values_NHC, to_distances_THC, None, None


def _distances(sizes: Sequence[int], device: torch.device) -> Iterator[tuple[int, int, Tensor]]:
    """Yield every distance with the first position that has an earlier one so far back, as all after it do.

    These earlier positions come third, int64 [M].
    """
    starts = [0, *accumulate(sizes)]
    places_N = torch.arange(starts[-1], device=device)
    spans = [places_N[start : start + size] for start, size in zip(starts, sizes[1:], strict=False)]
    before_M, earlier_M = torch.cat([places_N[:0], *spans]), places_N
    for back, size in enumerate(sizes):
        yield back, starts[back], earlier_M
        earlier_M = before_M[earlier_M[size:] - sizes[0]]


def _keys(keys_NHC: Tensor, earlier_M: Tensor, distances_THC: Tensor | None, back: int) -> Tensor:
    """Return the keys of positions at a distance, [M, H, C]."""
    keys_MHC = keys_NHC[earlier_M]
    return keys_MHC if distances_THC is None else keys_MHC + distances_THC[back]


def _dot(left_MHC: Tensor, right_MHC: Tensor) -> Tensor:
    return (left_MHC * right_MHC).sum(dim=2)
