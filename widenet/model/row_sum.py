"""The divisors of activations over a whole layer: sums over its units, by tiles and then over all shards."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.exchange import Exchange
from widenet.kernels.fixed_point import exact_sum
from widenet.model.operands import filled_columns


@dataclass
class RowSum:
    """A shard's part of the divisors of E examples.

    Attributes:
        kind: Kind of the activation.
        peak_E: Largest logit, float32; only for a softmax.
        sum_E: The sum, float64; for a softmax of exp(z - peak).
    """

    kind: str
    peak_E: Tensor
    sum_E: Tensor

    @classmethod
    def empty(cls, kind: str, num_examples: int, device: torch.device) -> "RowSum":
        """Return the sum over no units."""
        peak_E = torch.full((num_examples,), -torch.inf, device=device)
        return cls(kind, peak_E, torch.zeros_like(peak_E, dtype=torch.float64))

    @classmethod
    def joined(cls, sums: Sequence["RowSum"]) -> "RowSum":
        """Return the sums of one or more groups of examples, in order, as one."""
        peaks, totals = [own.peak_E for own in sums], [own.sum_E for own in sums]
        return cls(sums[0].kind, torch.cat(peaks), torch.cat(totals))

    def add(self, logits_ET: Tensor, columns: int = 1) -> None:
        """Add a tile's logits, with columns after them that add nothing, up to a multiple of `columns`."""
        num_examples, units = logits_ET.shape
        if self.kind == "softmax":
            self._raise_peak(logits_ET.amax(dim=1))
            share_EC = logits_ET.new_empty(num_examples, units + -units % columns)
            torch.sub(logits_ET, self.peak_E[:, None], out=share_EC[:, :units])
            share_EC[:, units:] = -torch.inf
            self.sum_E += share_EC.exp_().sum(dim=1)
        else:
            part_EC = filled_columns(logits_ET, columns)
            self.sum_E += (torch.relu(part_EC) if self.kind == "relu_max" else part_EC.abs()).sum(dim=1)

    def add_part(self, peak_E: Tensor, sum_E: Tensor) -> None:
        """Add the sum of a softmax over some units: their largest logit [E], and that of exp(z - it) [E]."""
        self._raise_peak(peak_E)
        self.sum_E += sum_E * torch.exp((peak_E - self.peak_E).double())

    def _raise_peak(self, peak_E: Tensor) -> None:
        higher_E = torch.maximum(self.peak_E, peak_E)
        self.sum_E *= torch.exp((self.peak_E - higher_E).double())
        self.peak_E = higher_E


def over_shards(sums: Sequence[RowSum], exchange: Exchange, where: str) -> Tensor:
    """Return the divisors, or a softmax's logarithms of them, from the sums of this process's shards: [E]."""
    if sums[0].kind != "softmax":
        return exact_sum(exchange.gather([own.sum_E for own in sums], where)).float()
    own = torch.stack([own.peak_E for own in sums]).double(), torch.stack([own.sum_E for own in sums])
    both_S2E = torch.stack(exchange.gather(torch.stack(own, dim=1).unbind(), where))
    peak_SE, total_SE = both_S2E[:, 0].float(), both_S2E[:, 1]
    peak_E = peak_SE.amax(dim=0)
    scaled_SE = total_SE * torch.exp((peak_SE - peak_E).double())
    return (peak_E.double() + torch.log(exact_sum(scaled_SE))).float()


def divided(kind: str, logits: Tensor, total_E1: Tensor) -> Tensor:
    """Return the activations of logits [E, N] from `over_shards`; zero if the divisor is zero."""
    if kind == "softmax":
        return torch.exp(logits - total_E1)
    parts = torch.relu(logits) if kind == "relu_max" else logits
    return torch.where(total_E1 == 0, 0.0, parts / total_E1)
