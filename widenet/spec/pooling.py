"""Pooling functions: what a layer without weights makes of its sources."""

from typing import Annotated, Literal

from pydantic import Field

from widenet.spec.document import Spec
from widenet.spec.named import named

_Plain = Literal["max", "average", "maxout", "dot_product", "cosine"]


class PlainPooling(Spec):
    """A pooling function without numbers of its own.

    max and average look at the window of a kernel at each place of each channel; an average counts no
    padding. The others need no kernel: maxout gives the largest of all sources, unit by unit. With sources
    x0, x1 to xn, dot_product gives n units <x0, xi>, and cosine n units <x0, xi> / ((|x0| + 1e-8) (|xi| +
    1e-8)).
    """

    kind: _Plain
    """Its name."""


class LocalResponseNormalization(Spec):
    """x / (k + alpha / n * sum of the squares of the n channels around x at its place) ^ beta."""

    kind: Literal["lrn"]
    """Its name."""
    k: Annotated[float, Field(gt=0)] = 2.0
    """Constant that is added to the sum."""
    n: Annotated[int, Field(ge=1, le=1000)] = 5
    """Channels that are summed, (n - 1) // 2 before and n // 2 after."""
    alpha: Annotated[float, Field(ge=0)] = 1e-4
    """Weight of the mean square."""
    beta: Annotated[float, Field(ge=0)] = 0.75
    """The power."""


WINDOWED = ("max", "average")
"""The functions that take a kernel."""

COMPARING = ("maxout", "dot_product", "cosine")
"""The functions of several sources."""

Pooling = PlainPooling | LocalResponseNormalization
PoolingField = named(Pooling)
