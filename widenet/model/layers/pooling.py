"""The pooling layer: functions of its sources without weights."""

from functools import reduce
from itertools import repeat
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.convolution import cropped, padded, reached, scattered
from widenet.model.flow import Flow
from widenet.plan.layout import Windows
from widenet.spec.activations import LocalResponseNormalization
from widenet.spec.layers import PoolingLayer

_LENGTH_FLOOR = 1e-8
"""Added to each length under "cosine", as DSSTNE does."""


def forward(layer: PoolingLayer, flow: Flow) -> Tensor:
    """Return the layer's values."""
    first, (first_EM, *others) = flow.layout.network.sources(layer)[0], flow.sources
    windows, shape = flow.layout.windows.get((layer.name, first)), flow.layout.shapes[first]
    match layer.function:
        case LocalResponseNormalization(k=k, n=n, alpha=alpha, beta=beta):
            values = first_EM.view(len(first_EM), shape[0], prod(shape[1:]))
            found = _local_response(values, n, alpha, beta, k)
        case plain if windows is not None:
            values = first_EM.view(len(first_EM), windows.channels, *windows.places)
            pool = _Largest if plain.kind == "max" else _Mean
            found = pool.apply(values, windows)  # type: ignore[no-untyped-call]
        case plain if plain.kind == "maxout":
            found = reduce(lambda best, other: torch.where(other > best, other, best), flow.sources)
        case plain:
            products = [(first_EM * other_EM).sum(dim=1) for other_EM in others]
            if plain.kind == "cosine":
                first_E, *lengths = (
                    torch.linalg.vector_norm(source, dim=1) + _LENGTH_FLOOR for source in flow.sources
                )
                products = [
                    each_E / (first_E * length_E) for each_E, length_E in zip(products, lengths, strict=True)
                ]
            found = torch.stack(products, dim=1)
    return sum(flow.skips, found.flatten(1))


def _local_response(values_ECP: Tensor, n: int, alpha: float, beta: float, k: float) -> Tensor:
    """Return the local response normalization as cuDNN has it.

    It adds numbers and gradients in the order of torch's `local_response_norm`, which takes several times as
    long on a CPU. Of an even n torch takes one channel more before than after, so channels turn round.
    """
    if not n % 2:
        values_ECP = values_ECP.flip(1)
    whole = functional.pad(values_ECP.mul(values_ECP), (0, 0, n // 2, (n - 1) // 2))
    first, *others = [whole.narrow(1, number, values_ECP.shape[1]) for number in range(n)]
    mean_ECP: Tensor = sum(others, first).div(n)
    found_ECP = values_ECP / mean_ECP.mul(alpha).add(k).pow(beta)
    return found_ECP if n % 2 else found_ECP.flip(1)


class _Largest(torch.autograd.Function):
    """The largest value of every window, [E, channels, *positions]; of equal ones the first counts.

    There are two ways of the same bits: torch's own for two axes on a CPU, and one for all others.

    Torch's own adds up the gradients of overlapping windows in no fixed order on CUDA. On a CPU it adds
    window by window. It visits the windows from the last to the first here, and so adds in the order of the
    kernel's numbers, as the other way does.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows) -> Tensor:
        whole = padded(values, windows.axes, -torch.inf)
        ctx.windows, ctx.strides = windows, [axis.stride for axis in windows.axes]
        ctx.plane = whole.shape if values.device.type == "cpu" and len(windows.axes) == 2 else None
        if ctx.plane is not None:
            best, chosen = functional.max_pool2d(whole, windows.kernel, ctx.strides, return_indices=True)
        else:
            first, *others = reached(whole, windows)
            best, chosen = first.clone(), torch.zeros(first.shape, dtype=torch.int32, device=values.device)
            for number, view in enumerate(others, 1):
                larger = view > best
                best, chosen = torch.where(larger, view, best), chosen.masked_fill_(larger, number)
        ctx.save_for_backward(chosen.int())
        return best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (chosen,), windows, (gradient,) = ctx.saved_tensors, ctx.windows, gradients
        if ctx.plane is None:
            pieces = (gradient * (chosen == number) for number in range(prod(windows.kernel)))
            return scattered(pieces, windows, gradient), None
        total = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient.flip(2, 3),
            gradient.new_empty(ctx.plane),
            windows.kernel,
            ctx.strides,
            [0, 0],
            [1, 1],
            False,
            chosen.flip(2, 3).long(),
        )
        return cropped(total, windows.axes), None


class _Mean(torch.autograd.Function):
    """The mean of what every window covers of the places, [E, channels, *positions]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows) -> Tensor:
        covered = sum(reached(padded(values.new_ones(1, 1, *windows.places), windows.axes), windows))
        first, *others = reached(padded(values, windows.axes), windows)
        ctx.windows, ctx.covered = windows, covered
        found: Tensor = sum(others, first) / covered
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        share = gradients[0] / ctx.covered
        return scattered(repeat(share, prod(ctx.windows.kernel)), ctx.windows, share), None
