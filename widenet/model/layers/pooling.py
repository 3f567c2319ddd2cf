"""The pooling layer: functions of its sources without weights."""

from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.convolution import padded
from widenet.plan.windows import Shape, Windows
from widenet.spec.pooling import LocalResponseNormalization
from widenet.spec.spatial import PoolingLayer

_LENGTH_FLOOR = 1e-8
"""Added to each length under "cosine", as DSSTNE does."""
_MAXIMA = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_MEANS = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def forward(spec: PoolingLayer, sources: list[Tensor], shape: Shape, windows: Windows | None, skips: list[Tensor]) -> Tensor:
    """Units [E, N]. Differentiable.

    sources: the units [E, M] of each source. shape: of the first one. windows: how a kernel moves over it, for max and average.
    skips: units [E, N] to add.
    """
    first_EM = sources[0]
    match spec.function:
        case LocalResponseNormalization(k=k, n=n, alpha=alpha, beta=beta):
            found = functional.local_response_norm(first_EM.view(len(first_EM), *shape), n, alpha, beta, k)
        case plain if windows is not None:
            values = first_EM.view(len(first_EM), windows.channels, *windows.places)
            found = _largest(values, windows) if plain.kind == "max" else _mean(values, windows)
        case plain if plain.kind == "maxout":
            found = reduce(lambda best, other: torch.where(other > best, other, best), sources)
        case plain:
            products = [(first_EM * other_EM).sum(dim=1) for other_EM in sources[1:]]
            if plain.kind == "cosine":
                lengths = [torch.linalg.vector_norm(source, dim=1) + _LENGTH_FLOOR for source in sources]
                products = [each_E / (lengths[0] * length_E) for each_E, length_E in zip(products, lengths[1:], strict=True)]
            found = torch.stack(products, dim=1)
    return sum(skips, found.flatten(1))


def _largest(values: Tensor, windows: Windows) -> Tensor:
    """The largest value of every window, [E, channels, *positions]; of equal ones the first counts."""
    pool = _MAXIMA[len(windows.axes) - 1]
    found: Tensor = pool(padded(values, windows.axes, -torch.inf), windows.kernel, _strides(windows))
    return found


def _mean(values: Tensor, windows: Windows) -> Tensor:
    """The mean of what every window covers of the places, [E, channels, *positions]."""
    pool, strides = _MEANS[len(windows.axes) - 1], _strides(windows)
    covered = pool(padded(values.new_ones(1, 1, *windows.places), windows.axes), windows.kernel, strides)
    found: Tensor = pool(padded(values, windows.axes), windows.kernel, strides) / covered
    return found


def _strides(windows: Windows) -> tuple[int, ...]:
    return tuple(axis.stride for axis in windows.axes)
