"""Batches in fixed shapes: whatever differs in length from batch to batch padded to a capacity, and all of
a batch in two tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import Touched
from widenet.model.preparation import Prepared
from widenet.model.sharding import ByUnit
from widenet.model.targets import Targets
from widenet.sparse import SparseBatch

_LEAST, _ROOM = 64, 1.25
"""Numbers of a capacity at least, and how much more than a batch asks is given, so that few later batches
outgrow it.
"""
_BEYOND = 2**62
"""The unit of an entry that is none: after all others, and in no tile."""

Place = Callable[[Tensor, int | None], Tensor]
"""Takes a tensor of a batch, and what fills the room behind it, None where its length is that of every
batch; gives where it lies.
"""


@dataclass(frozen=True)
class Packed:
    """A batch in two tensors, whole numbers int64 [N] and others float32 [M]. capacities: of its tensors,
    in the order of `placed`.
    """

    whole: Tensor
    real: Tensor
    capacities: tuple[int, ...]

    def unpacked(self, prepared: Prepared, weights_E: Tensor | None) -> tuple[Prepared, Tensor | None]:
        """The padded batch in the memory of the two tensors. prepared, weights_E: a batch of the same
        kind, for its structure.
        """
        capacities, used = iter(self.capacities), {torch.int64: 0, torch.float32: 0}

        def place(tensor: Tensor, fill: int | None) -> Tensor:
            kind, capacity = _kind(tensor), next(capacities)
            start = used[kind]
            used[kind] += _aligned(capacity)
            found = (self.real if kind == torch.float32 else self.whole)[start : start + capacity]
            return found.view(tensor.shape) if fill is None else found

        return placed(prepared, weights_E, place)


class Packer:
    """Packs one batch after the other; capacities grow where a batch asks for more, and never shrink."""

    def __init__(self) -> None:
        self._capacities: tuple[int, ...] = ()

    def pack(self, prepared: Prepared, weights_E: Tensor | None) -> Packed:
        """A batch of sparse and dense inputs and targets, none of them a sample or a sequence."""
        tensors: list[tuple[Tensor, int | None]] = []

        def place(tensor: Tensor, fill: int | None) -> Tensor:
            tensors.append((tensor, fill))
            return tensor

        placed(prepared, weights_E, place)
        before = self._capacities or (0,) * len(tensors)
        if any(tensor.numel() > capacity for (tensor, _), capacity in zip(tensors, before, strict=True)):
            self._capacities = tuple(
                max(_capacity(*each), capacity) for each, capacity in zip(tensors, before, strict=True)
            )
        flat = [(tensor.reshape(-1).to(_kind(tensor)), fill or 0) for tensor, fill in tensors]
        rooms = [
            _aligned(capacity) - tensor.numel()
            for (tensor, _), capacity in zip(tensors, self._capacities, strict=True)
        ]
        pieces: dict[torch.dtype, list[Tensor]] = {torch.int64: [], torch.float32: []}
        device, kinds = flat[0][0].device, dict.fromkeys((tensor.dtype, fill) for tensor, fill in flat)
        fills = {
            (dtype, fill): torch.full((max(rooms),), fill, dtype=dtype, device=device)
            for dtype, fill in kinds
        }
        for (tensor, fill), room in zip(flat, rooms, strict=True):
            pieces[tensor.dtype] += [tensor, fills[tensor.dtype, fill][:room]]
        return Packed(torch.cat(pieces[torch.int64]), torch.cat(pieces[torch.float32]), self._capacities)


def placed(prepared: Prepared, weights_E: Tensor | None, place: Place) -> tuple[Prepared, Tensor | None]:
    """A batch, and what its examples count, with every tensor where `place` puts it.

    What is padded has no effect: entries of no example, rows numbered -1, targets of a unit that is none and
    of value 0.
    """

    def features(part: SparseBatch) -> SparseBatch:
        values = None if part.values is None else place(part.values, 0)
        return SparseBatch(place(part.indptr, None), place(part.indices, 0), values)

    def rows(touched: Touched) -> Touched:
        values_Z = None if touched.values_Z is None else place(touched.values_Z, 0)
        return Touched(
            place(touched.features_U, -1), place(touched.indptr, 0), place(touched.examples_Z, 0), values_Z
        )

    def entries(part: ByUnit) -> ByUnit:
        examples_Z, units_Z = place(part.examples_Z, 0), place(part.units_Z, _BEYOND)
        return ByUnit(examples_Z, units_Z, place(part.values_or_ones(), 0), part.host_Z[:0])

    def targets(asked: object) -> Targets:
        assert isinstance(asked, Targets)
        assert asked.sparse is not None
        return Targets(
            place(asked.num_E, None), place(asked.total_E, None), [entries(part) for part in asked.sparse]
        )

    found = Prepared(
        sparse={name: [features(part) for part in parts] for name, parts in prepared.sparse.items()},
        dense={name: place(values_EN, None) for name, values_EN in prepared.dense.items()},
        asked={name: targets(asked) for name, asked in prepared.asked.items()},
        touched={
            name: {shard: rows(each) for shard, each in by_shard.items()}
            for name, by_shard in prepared.touched.items()
        },
    )
    return found, None if weights_E is None else place(weights_E, None)


def _kind(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.is_floating_point() else torch.int64


def _capacity(tensor: Tensor, fill: int | None) -> int:
    """Numbers that a tensor gets: as many as every batch has, or the next of a series that rises by about
    a quarter each time.
    """
    if fill is None:
        return tensor.numel()
    asked = max(round(tensor.numel() * _ROOM), _LEAST)
    step = 1 << (asked.bit_length() - 3)
    return -(-asked // step) * step


def _aligned(capacity: int) -> int:
    """With room up to the next tensor, which begins where memory is read fastest."""
    return -(-capacity // _LEAST) * _LEAST
