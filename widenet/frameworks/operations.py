"""What other programs' networks do, in a few words that all of them are read into."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount

_LARGEST_KERNEL = 2**20
"""Places of a kernel with dilations, which a file may claim to be of any size."""


@dataclass(frozen=True)
class Input:
    """A value that examples bring: dense [width], or the indices of features among `width`. width: None where
    the file does not say.

    shape: channels and the sizes of axes, where it has any. is_sequence: the indices have an order; last: at
    most so many of them count.
    """

    name: str
    width: int | None
    shape: tuple[int, ...] | None = None
    is_sparse: bool = False
    scale: str = "none"
    is_sequence: bool = False
    last: int | None = None


@dataclass(frozen=True)
class Dense:
    """x W^T + b. weight: float32 [units, inputs]; bias: float32 [units] or None.

    Of a sparse input, the sum of its features' columns.
    """

    name: str
    source: str
    weight: np.ndarray
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Recur:
    """A GRU or an LSTM along a sequence, as `spec.recurrent` has them, and its state at the end of it.

    weight: float32 [G, inputs], gate after gate; own: [G, units], of the state before. bias: [4 units] or
    None; of a gru the last ones belong to the state before.
    """

    name: str
    source: str
    cell: Literal["gru", "lstm"]
    weight: np.ndarray
    own: np.ndarray
    bias: np.ndarray | None = None


Padding: TypeAlias = tuple[tuple[int, int], ...] | Literal["same"]
"""Zeros before and after the places of each axis; same: as a network document has it."""


@dataclass(frozen=True)
class Convolve:
    """A convolution. weight: float32 [filters, channels, *kernel]; bias: float32 [filters] or None."""

    name: str
    source: str
    weight: np.ndarray
    bias: np.ndarray | None
    stride: tuple[int, ...]
    padding: Padding


@dataclass(frozen=True)
class Pool:
    """A pooling layer. function: as a network document writes it. kernel: None covers all places, or belongs
    to no function.

    rounds_up: a last window may reach beyond places and padding.
    """

    name: str
    source: str
    function: str | dict[str, Any]
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: Padding = ()
    rounds_up: bool = False


@dataclass(frozen=True)
class Affine:
    """x * scale + shift, each one number or one for each unit; after a convolution, one for each channel."""

    name: str
    source: str
    scale: np.ndarray | float = 1.0
    shift: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Activate:
    """An activation, as a network document writes it.

    by_place: a softmax is over the channels of each place, not over all units. is_logarithm: the file takes
    the logarithm of it, which ranks alike, so that an output can do without.
    """

    name: str
    source: str
    activation: str | dict[str, Any]
    by_place: bool = False
    is_logarithm: bool = False


@dataclass(frozen=True)
class Join:
    """Values side by side."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Add:
    """The sum of values of one width."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Drop:
    """Dropout: nothing outside training."""

    name: str
    source: str
    probability: float


@dataclass(frozen=True)
class Same:
    """Its source, under another name or in another shape. channels_last: flattened, the channels fastest.

    shape: channels and axes that it has from then on, where the file says any.
    """

    name: str
    source: str
    channels_last: bool = False
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Unknown:
    """What has no counterpart. kind: as the file calls it, or why it cannot be read."""

    name: str
    kind: str


def whole_filters(weight: np.ndarray, groups: int, dilation: Sequence[int]) -> np.ndarray:
    """The filters [filters, channels, *kernel] of an ordinary convolution that computes what one in groups or
    with dilations does.

    weight: [filters, channels / groups, *kernel]. Between the weights stand zeros. Raises ValueError where
    the groups do not divide them, or the kernel would be huge.
    """
    filters, inner, *kernel = weight.shape
    if filters % groups:
        raise ValueError(f"{groups} groups must divide the {filters} filters")
    sizes = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    if prod(sizes) > _LARGEST_KERNEL:
        raise ValueError(f"dilations {list(dilation)} make a kernel of {' x '.join(map(str, sizes))}")
    needed, free = 4 * filters * inner * groups * prod(sizes), available_memory()
    if free is not None and needed > free:
        raise ValueError(f"{groups} groups make filters of {amount(needed)}, where {amount(free)} are free")
    found = np.zeros((filters, inner * groups, *sizes), weight.dtype)
    places = tuple(slice(None, None, step) for step in dilation)
    own = filters // groups
    for group in range(groups):
        filled = (slice(group * own, (group + 1) * own), slice(group * inner, (group + 1) * inner), *places)
        found[filled] = weight[filled[0]]
    return found


def leaky(name: str, source: str, slope: float) -> Activate | Unknown:
    """A rectifier with a slope for negative x; a network document has only slopes from 0 to 1 for that
    side.
    """
    if not 0 <= slope <= 1:
        return Unknown(name, f"a leaky ReLU with the slope {slope:g}, which is not from 0 to 1")
    return Activate(name, source, {"kind": "leaky_relu", "slope": slope} if slope else "relu")


Operation: TypeAlias = (
    Input | Dense | Recur | Convolve | Pool | Affine | Activate | Join | Add | Drop | Same | Unknown
)


@dataclass
class Operations:
    """A network as it was read: operations, each after its sources; and which of them it gives, by the
    names that it gives them.
    """

    steps: list[Operation] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)

    def sources(self, step: Operation) -> tuple[str, ...]:
        """The names of an operation's sources."""
        if isinstance(step, Input | Unknown):
            return ()
        return step.sources if isinstance(step, Join | Add) else (step.source,)
