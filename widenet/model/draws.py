"""The random numbers of one training step: functions of (seed, purpose, epoch, step within the epoch)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.randomness import stream
from widenet.transfer import sent


@dataclass(frozen=True)
class Draws:
    """Where in a training the numbers are drawn."""

    seed: int
    epoch: int
    step: int

    def kept(
        self, purpose: str, shape: tuple[int, ...], share_dropped: float, device: torch.device
    ) -> Tensor:
        """bool of a shape: true with probability 1 - share_dropped."""
        numbers = stream(self.seed, purpose, self.epoch, self.step).random(shape, dtype="float32")
        return sent(torch.from_numpy(numbers >= share_dropped), device)

    def spread(self, purpose: str, num: int) -> np.ndarray:
        """float64 [num], ascending: a number at random in each of as many equal pieces of [0, 1)."""
        return (np.arange(num) + stream(self.seed, purpose, self.epoch, self.step).random(num)) / num
