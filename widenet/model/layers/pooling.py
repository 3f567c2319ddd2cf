"""The pooling layer: functions of its sources without weights."""

from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.convolution import cropped, padded, padded_zeros, reached
from widenet.model.layers import Flow, LayerKind
from widenet.plan.windows import Shape, Windows
from widenet.spec.activations import LocalResponseNormalization
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
            found = largest(values, windows) if plain.kind == "max" else mean(values, windows)
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
    if not n % 2:
        return _odd_response(values_ECP.flip(1), n, alpha, beta, k).flip(1)
    return _odd_response(values_ECP, n, alpha, beta, k)


def _odd_response(values_ECP: Tensor, n: int, alpha: float, beta: float, k: float) -> Tensor:
    mean_ECP: Tensor = _MeanOfChannels.apply(values_ECP.mul(values_ECP), n)  # type: ignore[no-untyped-call]
    return values_ECP / mean_ECP.mul(alpha).add(k).pow(beta)


class _MeanOfChannels(torch.autograd.Function):
    """The mean of n // 2 channels before each channel, of itself and of those after it, n in all.

    It adds numbers, and gradients, in the order of torch's `local_response_norm`, whose average over windows
    takes several times as long on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, values_ECP: Tensor, n: int) -> Tensor:
        ctx.n, channels = n, values_ECP.shape[1]
        whole = functional.pad(values_ECP, (0, 0, n // 2, (n - 1) // 2))
        total = whole[:, :channels].clone()
        for number in range(1, n):
            total += whole[:, number : number + channels]
        return total.div_(n)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        share, n = gradients[0] / ctx.n, ctx.n
        examples, channels, places = share.shape
        total = share.new_zeros(examples, channels + n - 1, places)
        for number in reversed(range(n)):
            total[:, number : number + channels] += share
        return total[:, n // 2 : n // 2 + channels], None


def largest(values: Tensor, windows: Windows) -> Tensor:
    """Return the largest value of every window, [E, channels, *positions]; of equal ones the first counts.

    Both ways give the same bits.
    """
    is_plane = values.device.type == "cpu" and len(windows.axes) == 2
    found: Tensor = (_LargestOfPlane if is_plane else _Largest).apply(values, windows)  # type: ignore[no-untyped-call]
    return found


class _LargestOfPlane(torch.autograd.Function):
    """Torch's own function for two axes, on a CPU.

    Its backward pass adds up gradients window by window. It visits the windows from the last to the first
    here, so that it adds in the order of `_Largest`, by the numbers of the kernel.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, windows: Windows) -> Tensor:
        whole = padded(values, windows.axes, -torch.inf)
        ctx.windows, ctx.shape = windows, whole.shape
        best, places = functional.max_pool2d(
            whole, windows.kernel, [axis.stride for axis in windows.axes], return_indices=True
        )
        ctx.save_for_backward(places.int())
        return best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,), windows = ctx.saved_tensors, ctx.windows
        total = torch.ops.aten.max_pool2d_with_indices_backward(
            gradients[0].flip(2, 3),
            gradients[0].new_empty(ctx.shape),
            windows.kernel,
            [axis.stride for axis in windows.axes],
            [0, 0],
            [1, 1],
            False,
            places.flip(2, 3).long(),
        )
        return cropped(total, windows.axes), None


class _Largest(torch.autograd.Function):
    """See `largest`. Torch's own adds up the gradients of overlapping windows in no fixed order on CUDA."""

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


def mean(values: Tensor, windows: Windows) -> Tensor:
    """Return the mean of what every window covers of the places, [E, channels, *positions]."""
    found: Tensor = _Mean.apply(values, windows)  # type: ignore[no-untyped-call]
    return found


class _Mean(torch.autograd.Function):
    """See `mean`."""

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
