"""The pooling layer: functions of its sources without weights."""

from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.layers import Flow, LayerKind
from widenet.model.places import cropped, padded, padded_zeros, reached
from widenet.plan.windows import Shape, Windows
from widenet.spec.pooling import LocalResponseNormalization
from widenet.spec.spatial import PoolingLayer

_LENGTH_FLOOR = 1e-8
"""Added to each length under "cosine", as DSSTNE does."""


def forward(
    spec: PoolingLayer, sources: list[Tensor], shape: Shape, windows: Windows | None, skips: list[Tensor]
) -> Tensor:
    """Units [E, N].

    Differentiable.

    sources: the units [E, M] of each source. shape: of the first one. windows: how a kernel moves over it,
    for max and average.
    skips: units [E, N] to add.
    """
    first_EM = sources[0]
    match spec.function:
        case LocalResponseNormalization(k=k, n=n, alpha=alpha, beta=beta):
            found = _local_response(
                first_EM.view(len(first_EM), shape[0], prod(shape[1:])), n, alpha, beta, k
            )
        case plain if windows is not None:
            values = first_EM.view(len(first_EM), windows.channels, *windows.places)
            found = _Largest.apply(values, windows) if plain.kind == "max" else _Mean.apply(values, windows)  # type: ignore[no-untyped-call]
        case plain if plain.kind == "maxout":
            found = reduce(lambda best, other: torch.where(other > best, other, best), sources)
        case plain:
            products = [(first_EM * other_EM).sum(dim=1) for other_EM in sources[1:]]
            if plain.kind == "cosine":
                lengths = [torch.linalg.vector_norm(source, dim=1) + _LENGTH_FLOOR for source in sources]
                products = [
                    each_E / (lengths[0] * length_E)
                    for each_E, length_E in zip(products, lengths[1:], strict=True)
                ]
            found = torch.stack(products, dim=1)
    return sum(skips, found.flatten(1))


def _local_response(values_ECP: Tensor, n: int, alpha: float, beta: float, k: float) -> Tensor:
    """Local response normalization as cuDNN has it.

    Of an even n torch takes one channel more before than after, so channels turn round.
    """
    if n % 2:
        return functional.local_response_norm(values_ECP, n, alpha, beta, k)
    return functional.local_response_norm(values_ECP.flip(1), n, alpha, beta, k).flip(1)


class _Largest(torch.autograd.Function):
    """The largest value of every window, [E, channels, *positions]; of equal ones the first counts.

    Torch's own adds up the gradients of windows that overlap in no fixed order on CUDA.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows) -> Tensor:
        first, *others = reached(padded(values, windows.axes, -torch.inf), windows)
        best, chosen = first.clone(), torch.zeros(first.shape, dtype=torch.int32, device=values.device)
        for number, view in enumerate(others, 1):
            larger = view > best
            best, chosen = torch.where(larger, view, best), chosen.masked_fill_(larger, number)
        ctx.save_for_backward(chosen)
        ctx.windows = windows
        return best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (chosen,), windows, gradient = ctx.saved_tensors, ctx.windows, gradients[0]
        total = padded_zeros(gradient, (len(gradient), windows.channels), windows.axes)
        for number, view in enumerate(reached(total, windows)):
            view += gradient * (chosen == number)
        return cropped(total, windows.axes), None


class _Mean(torch.autograd.Function):
    """The mean of what every window covers of the places, [E, channels, *positions]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows) -> Tensor:
        first, *others = reached(padded(values, windows.axes), windows)
        ctx.windows, ctx.covered = (
            windows,
            sum(reached(padded(values.new_ones(1, 1, *windows.places), windows.axes), windows)),
        )
        found: Tensor = sum(others, first) / ctx.covered
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        windows, share = ctx.windows, gradients[0] / ctx.covered
        total = padded_zeros(share, (len(share), windows.channels), windows.axes)
        for view in reached(total, windows):
            view += share
        return cropped(total, windows.axes), None


class Pooling(LayerKind[PoolingLayer]):
    """Layers without weights."""

    def forward(self, layer: PoolingLayer, flow: Flow) -> Tensor:
        """See `LayerKind.forward`."""
        first = flow.layout.network.sources(layer)[0]
        windows = flow.layout.windows.get((layer.name, first))
        return forward(layer, flow.sources, flow.layout.shapes[first], windows, flow.skips)


KIND = Pooling()
