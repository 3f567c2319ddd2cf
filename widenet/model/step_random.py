"""The random numbers of one training step: functions of (seed, purpose, epoch, step within the epoch)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.devices import sent
from widenet.randomness import stream


@dataclass(frozen=True)
class StepRandom:
    """The random numbers of one step, as functions of a purpose."""

    seed: int
    epoch: int
    step: int

    def keep_mask(
        self, purpose: str, shape: tuple[int, ...], share_dropped: float, device: torch.device
    ) -> Tensor:
        """Return a bool tensor whose entries are true with probability 1 - share_dropped."""
        numbers = stream(self.seed, purpose, self.epoch, self.step).random(shape, dtype="float32")
        return sent(torch.from_numpy(numbers >= share_dropped), device)

    def stratified(self, purpose: str, num: int) -> np.ndarray:
        """Return ascending random numbers, one in each of `num` equal pieces of [0, 1), float64 [num]."""
        return (np.arange(num) + stream(self.seed, purpose, self.epoch, self.step).random(num)) / num
