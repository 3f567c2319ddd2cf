"""Definitions of the operations of wide layers in plain torch: tests compare all faster code with them."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.plan.tiles import PIECE
from widenet.sparse import SparseBatch


def rounded(values: Tensor) -> Tensor:
    """Round float32 values to bfloat16, for a product.

    CUDA gets bfloat16 numbers, which it multiplies faster. A CPU gets the same values as float32: torch has
    no product on a CPU that takes bfloat16 and gives float32.
    """
    half = values.bfloat16()
    return half.float() if values.device.type == "cpu" else half


MAGNITUDE = 2**31 - 1
"""The bits of a float32 without its sign."""
_LAST = 2**32 - 1
MISSING = (-(2**23) ^ MAGNITUDE) << 32
"""The ranking key of the logit -inf, whose bits as an int32 are -(2^23), and of the last unit."""
_PIECE = 2**12
"""Logits of an example that torch compares at once."""


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """Sum, for every example, the weight rows of its features, times their values.

    The order of addition is the storage order within an example.

    Args:
        batch: E examples over F features.
        weight_FH: float32.

    Returns:
        float32 [E, H]. An example without features gives zeros; duplicate features add up.
    """
    rows_ZH = weight_FH.index_select(0, batch.indices)
    if batch.values is not None:
        rows_ZH = rows_ZH * batch.values[:, None]
    return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1]).index_add_(
        0, batch.example_of_entry(), rows_ZH
    )


LOWEST_PEAK = -1e30
"""What a tile's largest logit counts as at least: a sample may exclude all units, and inf - inf is NaN."""


def tile_shares(logits_ET: Tensor, peak_E: Tensor, total_E: Tensor, hidden_EH: Tensor, half: bool) -> Tensor:
    """Return the shares exp(logit - peak) of a tile of a softmax, for `peak` the largest logit so far.

    All are of one shard, or of several along a first dimension.

    Args:
        logits_ET: float32; overwritten.
        peak_E: The largest logit so far, float32, at least `LOWEST_PEAK`; updated in place.
        total_E: The sum of the shares so far, float64; updated in place.
        hidden_EH: Sums that have the shares so far as factors, float32; scaled to the new peak, in place.
        half: Whether shares are rounded to bfloat16.
    """
    before_E = peak_E.clone()
    torch.maximum(before_E, logits_ET.amax(dim=-1), out=peak_E)
    share_ET = logits_ET.sub_(peak_E[..., None]).exp_()
    if half:
        share_ET = rounded(share_ET)
    total_E.mul_(torch.exp((before_E - peak_E).double())).add_(share_ET.float().sum(dim=-1))
    hidden_EH.mul_(torch.exp(before_E - peak_E)[..., None])
    return share_ET


def keys(logits: Tensor, units: Tensor) -> Tensor:
    """Return keys, int64: a larger logit, or a lower unit of equal logits, has a larger key.

    NaN has the largest keys.

    Args:
        logits: float32.
        units: Integers below 2^32.
    """
    plain = torch.where(logits.isnan(), torch.nan, logits + 0.0)  # neither -0 nor -nan
    bits = plain.view(torch.int32)
    return ((bits ^ ((bits >> 31) & MAGNITUDE)).long() << 32) + (_LAST - units)


def unpacked(ranking_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and units of some keys; -inf and -1 for missing units."""
    ordered = (ranking_keys >> 32).int()
    logits = (ordered ^ ((ordered >> 31) & MAGNITUDE)).view(torch.float32)
    return logits, torch.where(logits == -torch.inf, -1, _LAST - (ranking_keys & _LAST))


class RunningTopK:
    """The definition, in plain torch: keeps the k best units of E examples over tiles."""

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.keys_EK = torch.full((len(floor_E), k), MISSING, device=floor_E.device)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """Search a tile of units after those of earlier tiles; -inf marks excluded units."""
        for start in range(0, len(units), _PIECE):
            some = units[start : start + _PIECE]
            unit_P = torch.arange(some.start, some.stop, some.step, device=logits_ET.device)
            new_EP = keys(logits_ET[:, start : start + _PIECE], unit_P)
            k = self.keys_EK.shape[1]
            self.keys_EK = torch.cat([self.keys_EK, new_EP], dim=1).topk(k, dim=1).values

    def result(self) -> Tensor:
        """Return the keys of the k best units, int64 [E, k], descending; `unpacked` reads them."""
        return self.keys_EK


def exponential(x: Tensor) -> Tensor:
    """Return exp(x) for float32 up to about 0, by Cephes' expf; arguments below -87 count as -87.

    Each operation rounds to float32 and none is fused, so the bits are the same on every processor. With
    n the whole number nearest to x / log(2), it is 2^n exp(r), and exp(r) = 1 + r + r^2 * polynomial.
    """
    x = x.clamp(min=-87.0)
    shifted = x * 1.442695041 + 1.5 * 2**23  # rounds to a whole number, n
    n = shifted - 1.5 * 2**23
    r = (x - n * 0.693359375) - n * -2.12194440e-4  # log(2) in two parts
    series = torch.full_like(r, 1.98756915e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = series * r + coefficient
    series = series * (r * r) + r + 1
    return series * ((shifted.view(torch.int32) + 127) << 23).view(torch.float32)


def add_softmax_sum(logits_ET: Tensor, peak_E: Tensor, total_E: Tensor) -> None:
    """Add a tile to the running sum of exp(logit - largest) of every example, in place, by pieces of units.

    The shares of a piece are folded in half until 8 are left, which are added in pairs, in float64.

    Args:
        logits_ET: float32.
        peak_E: The largest logit so far, float32; -inf at first.
        total_E: The sum so far, float64.
    """
    for logits_EP in torch.split(logits_ET, PIECE, dim=1):
        highest_E = torch.maximum(peak_E, logits_EP.amax(dim=1))
        share_EP = exponential(logits_EP - highest_E[:, None])
        share_EP = pad(share_EP, (0, PIECE - share_EP.shape[1]))
        while (half := share_EP.shape[1] // 2) >= 8:
            share_EP = share_EP[:, :half] + share_EP[:, half:]
        share_EP = share_EP.double()
        while share_EP.shape[1] > 1:
            share_EP = share_EP[:, 0::2] + share_EP[:, 1::2]
        fade_E = torch.where(peak_E == highest_E, 1.0, torch.exp((peak_E - highest_E).double()))
        total_E.mul_(fade_E).add_(share_EP[:, 0])
        peak_E.copy_(highest_E)
