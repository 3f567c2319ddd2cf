"""Computations of layers, in modules named after their kinds."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from widenet.model.flow import Flow
from widenet.model.layers import attention, hidden, pooling, recurrent

FORWARD: dict[str, Callable[[Any, Flow], Tensor]] = {
    "hidden": hidden.forward,
    "convolution": hidden.forward,
    "pooling": pooling.forward,
    "recurrent": recurrent.forward,
    "attention": attention.forward,
}
"""By kind: the values [E, units] of a layer, given what it reads; differentiable."""

ALONE = ("hidden", "convolution")
"""Kinds without a row whose bits depend on how many there are: outside training no blocks are filled up."""
