"""Initial weights: functions of (seed, weight, shard) alone."""

import math

import numpy as np
import torch
from torch import Tensor

from widenet.randomness import stream
from widenet.scratch import release
from widenet.spec.initializers import (
    CaffeXavier,
    Constant,
    Drawn,
    FromFile,
    Gaussian,
    He,
    Initializer,
    Reciprocal,
    Selu,
    Uniform,
    UnitBall,
    Xavier,
)

_BLOCK_NUMBERS = 2**22
"""Numbers that are drawn together; the numbers do not depend on it."""


def initial(
    spec: Initializer,
    shape: tuple[int, int],
    fan_in: int,
    fan_out: int,
    seed: int,
    purpose: str,
    shard: int = 0,
) -> Tensor:
    """Return initial weights, float32 [rows, columns]; see `fill`."""
    weight = torch.empty(shape)
    fill(weight, spec, fan_in, fan_out, seed, purpose, shard)
    return weight


def fill(
    weight: Tensor,
    spec: Initializer,
    fan_in: int,
    fan_out: int,
    seed: int,
    purpose: str,
    shard: int = 0,
) -> None:
    """Fill one shard of a weight with its initial numbers, some rows at a time.

    Args:
        weight: The shard, float32 [rows, columns], in the host's memory or in a file.
        spec: The initializer; for that of a file, what it says of features that the file lacks.
        fan_in: Units that enter the whole weight.
        fan_out: Units that leave it.
        seed: Seed of the training.
        purpose: Name of the weight.
        shard: Number of the shard.
    """
    drawn = spec.otherwise if isinstance(spec, FromFile) else spec
    draw = stream(seed, f"weights/{purpose}", shard)
    rows = max(1, _BLOCK_NUMBERS // max(weight.shape[1], 1))
    for block in torch.split(weight, rows):
        _draw(block, drawn, fan_in, fan_out, draw)
        release(block)
    if isinstance(drawn, UnitBall):
        for block in torch.split(weight, rows):
            _put_into_ball(block, drawn.radius, draw)
            release(block)


def _draw(block: Tensor, spec: Drawn, fan_in: int, fan_out: int, draw: np.random.Generator) -> None:
    match spec:
        case Xavier(scale=scale):
            _uniform(draw, block, scale * math.sqrt(6 / (fan_in + fan_out)))
        case CaffeXavier(scale=scale):
            _uniform(draw, block, scale * math.sqrt(3 / fan_out))
        case He(scale=scale):
            _gaussian(draw, block, scale * math.sqrt(2 / fan_in))
        case Gaussian(deviation=deviation):
            _gaussian(draw, block, deviation)
        case Uniform(limit=limit, low=low):
            _uniform(draw, block, limit, low)
        case UnitBall():
            _gaussian(draw, block, 1.0)
        case Constant(value=value):
            block.fill_(value)
        case Selu(scale=scale):
            _gaussian(draw, block, scale / math.sqrt(fan_in))
        case Reciprocal(scale=scale):
            _gaussian(draw, block, scale / fan_in)


def _put_into_ball(direction: Tensor, radius: float, draw: np.random.Generator) -> None:
    """Give rows lengths such that they lie evenly in a ball."""
    length = torch.from_numpy(draw.random((len(direction), 1), dtype=np.float32)).pow_(1 / direction.shape[1])
    direction.mul_(length * radius / direction.norm(dim=1, keepdim=True).clamp_min(1e-30))


def _uniform(draw: np.random.Generator, block: Tensor, limit: float, low: float | None = None) -> None:
    least = -limit if low is None else low
    draw.random(out=block.numpy(), dtype=np.float32)
    block.mul_(limit - least).add_(least)


def _gaussian(draw: np.random.Generator, block: Tensor, deviation: float) -> None:
    draw.standard_normal(out=block.numpy(), dtype=np.float32)
    block.mul_(deviation)
