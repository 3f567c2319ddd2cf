"""Initial weights: functions of (seed, weight, shard) alone."""

import math

import numpy as np
import torch
from torch import Tensor

from widenet.randomness import stream
from widenet.spec.initializers import (
    CaffeXavier,
    Constant,
    Gaussian,
    He,
    Initializer,
    Reciprocal,
    Selu,
    Uniform,
    UnitBall,
    Xavier,
)


def initial(
    spec: Initializer,
    shape: tuple[int, int],
    fan_in: int,
    fan_out: int,
    seed: int,
    purpose: str,
    shard: int = 0,
) -> Tensor:
    """Return initial weights, float32 [rows, columns].

    Args:
        spec: The initializer.
        shape: Shape of one shard of the weight.
        fan_in: Units that enter the whole weight.
        fan_out: Units that leave it.
        seed: Seed of the training.
        purpose: Name of the weight.
        shard: Number of the shard.
    """
    draw = stream(seed, f"weights/{purpose}", shard)
    match spec:
        case Xavier(scale=scale):
            return _uniform(draw, shape, scale * math.sqrt(6 / (fan_in + fan_out)))
        case CaffeXavier(scale=scale):
            return _uniform(draw, shape, scale * math.sqrt(3 / fan_out))
        case He(scale=scale):
            return _gaussian(draw, shape, scale * math.sqrt(2 / fan_in))
        case Gaussian(deviation=deviation):
            return _gaussian(draw, shape, deviation)
        case Uniform(limit=limit, low=low):
            return _uniform(draw, shape, limit, low)
        case UnitBall(radius=radius):
            direction = _gaussian(draw, shape, 1.0)
            length = torch.from_numpy(draw.random((shape[0], 1), dtype=np.float32)).pow_(1 / shape[1])
            return direction.mul_(length * radius / direction.norm(dim=1, keepdim=True).clamp_min(1e-30))
        case Constant(value=value):
            return torch.full(shape, value)
        case Selu(scale=scale):
            return _gaussian(draw, shape, scale / math.sqrt(fan_in))
        case Reciprocal(scale=scale):
            return _gaussian(draw, shape, scale / fan_in)


def _uniform(
    draw: np.random.Generator, shape: tuple[int, int], limit: float, low: float | None = None
) -> Tensor:
    least = -limit if low is None else low
    return torch.from_numpy(draw.random(shape, dtype=np.float32)).mul_(limit - least).add_(least)


def _gaussian(draw: np.random.Generator, shape: tuple[int, int], deviation: float) -> Tensor:
    return torch.from_numpy(draw.standard_normal(shape, dtype=np.float32)).mul_(deviation)
