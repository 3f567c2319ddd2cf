"""The k best units of every example, met tile by tile."""

import torch
from torch import Tensor


class RunningTopK:
    """Keeps the k largest logits of E examples over tiles that come in ascending order of units."""

    def __init__(self, num_examples: int, k: int, device: torch.device) -> None:
        self.k = k
        self.logits_EK = torch.full((num_examples, 0), -torch.inf, device=device)
        self.units_EK = torch.full((num_examples, 0), -1, dtype=torch.int64, device=device)

    def add(self, logits_ET: Tensor, first_unit: int) -> None:
        """Consider a tile of logits; -inf marks what must not appear."""
        top_EK, place_EK = _top(logits_ET, self.k)
        self._merge(top_EK, place_EK + first_unit)

    def result(self) -> tuple[Tensor, Tensor]:
        """Logits float32 [E, K'] descending and units int64 [E, K'], K' up to k; -inf and -1 where there is no unit."""
        return self.logits_EK, torch.where(self.logits_EK == -torch.inf, -1, self.units_EK)

    def _merge(self, logits_EK: Tensor, units_EK: Tensor) -> None:
        logits = torch.cat([self.logits_EK, logits_EK], dim=1)
        units = torch.cat([self.units_EK, units_EK], dim=1)
        self.logits_EK, self.units_EK = best(logits, units, self.k)


def _top(logits_ET: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest logits of a tile and their places, in any order; of those that tie for the last place, the lowest."""
    top_EN, place_EN = logits_ET.topk(min(k + 1, logits_ET.shape[1]), dim=1)
    if logits_ET.shape[1] > k:
        tied_E = (top_EN[:, k] == top_EN[:, k - 1]) & (top_EN[:, k] > -torch.inf)
        if bool(tied_E.any()):
            sorted_RT, order_RT = torch.sort(logits_ET[tied_E], dim=1, descending=True, stable=True)
            top_EN[tied_E], place_EN[tied_E] = sorted_RT[:, : k + 1], order_RT[:, : k + 1]
    return top_EN[:, :k], place_EN[:, :k]


def best(logits_EN: Tensor, units_EN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of some candidates, descending; of equal ones the lower unit first."""
    by_unit = torch.argsort(units_EN, dim=1, stable=True)
    logits_EN, units_EN = logits_EN.gather(1, by_unit), units_EN.gather(1, by_unit)
    sorted_EN, order_EN = torch.sort(logits_EN, dim=1, descending=True, stable=True)
    return sorted_EN[:, :k], units_EN.gather(1, order_EN[:, :k])
