"""Finds the k best units of every example, tile by tile: each program searches one example's logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels import reference
from widenet.kernels.reference import MISSING

LARGEST = 1024
"""The largest k; a program sorts twice as many keys at once."""

LEAST = 512
"""Smaller k have as much room as this one, so that they seldom sort."""


@triton.jit
def _keys(logits, units):
    """See `kernels.reference.keys`."""
    plain = tl.where(logits != logits, float("nan"), logits + 0.0)
    bits = plain.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) + (0xFFFFFFFF - units.to(tl.int64))


@triton.jit
def _logit_below(key):
    """Return the largest logit below a key's logit; NaN if there is none."""
    ordered = (key >> 32).to(tl.int32) - 1
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _running_top_k_kernel(
    logits,
    floors,
    keys,
    counts,
    bounds,
    first_unit,
    unit_step,
    num_units,
    k,
    MISSING_KEY: tl.constexpr,
    ROOM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    own = keys + example * ROOM
    places = tl.arange(0, ROOM)
    count = tl.load(counts + example)
    floor = tl.load(floors + example)
    bound = tl.maximum(tl.load(bounds + example), _keys(floor, 0 * count))
    for start in range(0, num_units, BLOCK):
        units = start + tl.arange(0, BLOCK)
        z = tl.load(logits + example * num_units + units, mask=units < num_units, other=-float("inf"))
        new = tl.where(units < num_units, _keys(z, first_unit + unit_step * units), MISSING_KEY)
        is_better = (new > bound).to(tl.int32)
        num_better = tl.sum(is_better, axis=0)
        if num_better > 0:
            if count + num_better > ROOM:
                tl.debug_barrier()
                best = tl.sort(tl.load(own + places), descending=True)
                tl.debug_barrier()
                tl.store(own + places, tl.where(places < k, best, MISSING_KEY))
                bound = tl.maximum(bound, tl.max(tl.where(places == k - 1, best, MISSING_KEY), axis=0))
                is_better = (new > bound).to(tl.int32)
                count = tl.minimum(count, k)
                tl.debug_barrier()
            tl.store(own + count + tl.cumsum(is_better, axis=0) - 1, new, mask=is_better > 0)
            count += tl.sum(is_better, axis=0)
    tl.store(counts + example, count)
    tl.store(bounds + example, bound)
    below = _logit_below(bound)
    tl.store(floors + example, tl.where(below > floor, below, floor))


class RunningTopK(reference.RunningTopK):
    """See `kernels.reference.RunningTopK`; k is at most `LARGEST`.

    Each example has room for at least 2 k keys. When the room is full, the kernel sorts them and keeps the k
    best.
    """

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.k, self.floor_E = k, floor_E
        self.room = 2 * triton.next_power_of_2(max(k, LEAST))
        self.keys_EN = torch.full((len(floor_E), self.room), MISSING, device=floor_E.device)
        self.num_E = torch.zeros(len(floor_E), dtype=torch.int32, device=floor_E.device)
        self.bound_E = torch.full((len(floor_E),), MISSING, device=floor_E.device)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """Search a tile of units after those of earlier tiles; -inf marks excluded units."""
        if not logits_ET.numel():
            return
        _running_top_k_kernel[(len(logits_ET),)](
            logits_ET.contiguous(),  # [E, T] float32
            self.floor_E,  # [E] float32, in and out
            self.keys_EN,  # [E, N] int64, in and out
            self.num_E,  # [E] int32, in and out
            self.bound_E,  # [E] int64, in and out
            units.start,
            units.step,
            logits_ET.shape[1],
            self.k,
            MISSING_KEY=MISSING,
            ROOM=self.room,
            BLOCK=self.room // 4,
            num_warps=8,
            enable_fp_fusion=False,
        )

    def result(self) -> Tensor:
        """Return the keys of the k best units, int64 [E, k], descending; `unpacked` reads them."""
        return self.keys_EN.topk(self.k, dim=1).values
