"""Computations of layers, in modules named after their kinds."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from widenet.model.flow import Flow
from widenet.model.layers import attention, hidden, pooling, recurrent
from widenet.spec.layers import Trunk

FORWARD: dict[str, Callable[[Any, Flow], Tensor]] = {
    "hidden": hidden.forward,
    "convolution": hidden.forward,
    "pooling": pooling.forward,
    "recurrent": recurrent.forward,
    "attention": attention.forward,
}
"""By kind: the values [E, units] of a layer, given what it reads; differentiable."""


def is_alone(layer: Trunk) -> bool:
    """Return whether no row's bits depend on how many there are, so that no blocks need to be filled up."""
    return layer.kind == "hidden" or getattr(layer, "kernel", None) is not None
