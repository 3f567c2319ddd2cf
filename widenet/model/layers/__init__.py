"""Computations of layers: one module for each kind, named after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from widenet.model.normalization import Statistics
from widenet.model.positions import Positions
from widenet.model.product import Blocks, Factor
from widenet.model.weight import TrunkWeight
from widenet.plan.layout import Layout
from widenet.randomness import StepRandom
from widenet.spec.layers import Trunk

Spec = TypeVar("Spec", bound=Trunk)


def kind_of(layer: Trunk) -> "LayerKind[Any]":
    """Return what a layer between inputs and outputs computes: the `KIND` of the module of its kind."""
    return _kind(layer.kind)


@cache
def _kind(name: str) -> "LayerKind[Any]":
    kind: LayerKind[Any] = import_module(f"{__name__}.{name}").KIND
    return kind


@dataclass(frozen=True)
class Flow:
    """Everything that a layer reads in a step.

    E is the number of examples, or of all their positions where the layer goes along a sequence.

    Attributes:
        layout: Layout of the network.
        trunk: Weights of hidden layers, by name.
        sources: Values of its sources, [E, units] each; without those of sparse inputs.
        sums: Products of its sources and their weights, [E, sums] each.
        skips: Values [E, units] of the layers to add.
        random: Random numbers of the step; None outside training.
        positions: Where the layer goes along a sequence.
        state: Weight of the state before, of a layer that is its own source.
        blocks: Computes further products.
        penalties: Takes the layer's penalty, if there is one.
        statistics: Takes the batch's statistics, by layer.
    """

    layout: Layout
    trunk: Mapping[str, TrunkWeight]
    sources: list[Tensor]
    sums: list[Tensor]
    skips: list[Tensor]
    random: StepRandom | None
    positions: Positions | None
    state: Factor | None
    blocks: Blocks
    penalties: list[Tensor]
    statistics: dict[str, Statistics]

    def tensor(self, name: str) -> Tensor:
        """Return a weight of the trunk by its name."""
        return self.trunk[name].tensor


class LayerKind(Generic[Spec]):
    """Computation and initial weights of the layers of one kind.

    Attributes:
        fills_rows: Whether batches are filled up to whole blocks of rows outside training, because a row's
            bits would depend on how many there are.
    """

    def __init__(self, fills_rows: bool = True) -> None:
        self.fills_rows = fills_rows

    def forward(self, layer: Spec, flow: Flow) -> Tensor:
        """Return the layer's values, float32 [E, units]; differentiable."""
        raise NotImplementedError

    def first_numbers(self, layer: Spec, name: str, count: int) -> Tensor:
        """Return the first values of biases and other weights of one dimension, float32 [count].

        Biases start at `bias_start`, scales and variances at 1, and others at 0.
        """
        if name.endswith(" bias"):
            return torch.full((count,), float(getattr(layer, "bias_start", 0)))
        return torch.full((count,), float(name.endswith(("scale", "variance"))))

    def fan_out(self, layer: Spec, sums: int) -> int:
        """Return what `out` means to an initializer, for weights to so many sums."""
        return sums
