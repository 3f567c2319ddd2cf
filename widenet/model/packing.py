"""Batches in fixed shapes: pads tensors of varying length, and packs all tensors of a batch into two."""

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
"""The smallest capacity, and its ratio to a tensor's size, so that few later batches outgrow it."""
_BEYOND = 2**62
"""The unit of a padding entry: after all others, and in no tile."""

Place = Callable[[Tensor, int | None], Tensor]
"""From a tensor of a batch and its padding value (None for a fixed length) to the moved tensor."""


@dataclass(frozen=True)
class Packed:
    """A batch in two tensors.

    Attributes:
        whole: Integers, int64 [N].
        real: Floats, float32 [M].
        capacities: Capacities of the batch's tensors, in the order of `placed`.
    """

    whole: Tensor
    real: Tensor
    capacities: tuple[int, ...]

    def unpacked(self, prepared: Prepared, weights_E: Tensor | None) -> tuple[Prepared, Tensor | None]:
        """Return the padded batch as views of the two tensors, in the structure of another batch."""
        capacities, used = iter(self.capacities), {torch.int64: 0, torch.float32: 0}

        def place(tensor: Tensor, fill: int | None) -> Tensor:
            kind, capacity = _kind(tensor), next(capacities)
            start = used[kind]
            used[kind] += _aligned(capacity)
            view = (self.real if kind == torch.float32 else self.whole)[start : start + capacity]
            return view.view(tensor.shape) if fill is None else view

        return placed(prepared, weights_E, place)


class Packer:
    """Packs one batch after the other; capacities grow when a batch needs more, and never shrink."""

    def __init__(self) -> None:
        self._capacities: tuple[int, ...] = ()

    def pack(self, prepared: Prepared, weights_E: Tensor | None) -> Packed:
        """Pack a batch of sparse and dense inputs and targets, without samples and sequences."""
        tensors: list[tuple[Tensor, int | None]] = []

        def place(tensor: Tensor, fill: int | None) -> Tensor:
            tensors.append((tensor, fill))
            return tensor

        placed(prepared, weights_E, place)
        before = self._capacities or (0,) * len(tensors)
        if any(tensor.numel() > capacity for (tensor, _), capacity in zip(tensors, before, strict=True)):
            self._capacities = tuple(
                max(_capacity(*pair), capacity) for pair, capacity in zip(tensors, before, strict=True)
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
    """Return a batch and its loss weights with every tensor moved by `place`.

    Padding has no effect: entries of no example, rows -1, and targets of value 0 at a unit in no tile.
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

    def targets(own: object) -> Targets:
        assert isinstance(own, Targets)
        assert own.sparse is not None
        return Targets(
            place(own.num_E, None), place(own.total_E, None), [entries(part) for part in own.sparse]
        )

    moved = Prepared(
        sparse={name: [features(part) for part in parts] for name, parts in prepared.sparse.items()},
        dense={name: place(values_EN, None) for name, values_EN in prepared.dense.items()},
        targets={name: targets(own) for name, own in prepared.targets.items()},
        touched={
            name: {shard: rows(own) for shard, own in by_shard.items()}
            for name, by_shard in prepared.touched.items()
        },
    )
    return moved, None if weights_E is None else place(weights_E, None)


def _kind(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.is_floating_point() else torch.int64


def _capacity(tensor: Tensor, fill: int | None) -> int:
    """Return the capacity for a tensor: its size if fixed, else rounded up in steps of about a quarter."""
    if fill is None:
        return tensor.numel()
    size = max(round(tensor.numel() * _ROOM), _LEAST)
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step


def _aligned(capacity: int) -> int:
    """Return a capacity rounded up, so that the next tensor begins at an aligned address."""
    return -(-capacity // _LEAST) * _LEAST
