"""What other programs' networks do, in a few words that all of them are read into."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Input:
    """A value that examples bring: dense [width], or the indices of features among `width`. width: None where the file does not say."""

    name: str
    width: int | None
    is_sparse: bool = False
    scale: str = "none"


@dataclass(frozen=True)
class Dense:
    """x W^T + b. weight: float32 [units, inputs]; bias: float32 [units] or None. Of a sparse input, the sum of its features' columns."""

    name: str
    source: str
    weight: np.ndarray
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Affine:
    """x * scale + shift, each one number or one for each unit."""

    name: str
    source: str
    scale: np.ndarray | float = 1.0
    shift: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Activate:
    """An activation, as a network document writes it."""

    name: str
    source: str
    activation: str | dict[str, Any]


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
    """Its source, under another name or in another shape."""

    name: str
    source: str


@dataclass(frozen=True)
class Unknown:
    """What has no counterpart. kind: as the file calls it, or why it cannot be read."""

    name: str
    kind: str


Operation: TypeAlias = Input | Dense | Affine | Activate | Join | Add | Drop | Same | Unknown


@dataclass
class Operations:
    """A network as it was read: operations, each after its sources; and which of them it gives, by the names that it gives them."""

    steps: list[Operation] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)

    def sources(self, step: Operation) -> tuple[str, ...]:
        """The names of an operation's sources."""
        if isinstance(step, Input | Unknown):
            return ()
        return step.sources if isinstance(step, Join | Add) else (step.source,)
