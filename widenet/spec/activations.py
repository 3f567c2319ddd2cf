"""Functions without weights: activations of a layer's sums, and functions of pooling layers."""

from typing import Annotated, Literal

from pydantic import Field

from widenet.spec.document import Positive, Spec, named


class PlainActivation(Spec):
    """An activation without numbers of its own.

    The last three look at the whole layer: softmax gives exp(x) / sum exp(x), relu_max max(x, 0) / sum max(x,
    0), linear_max x / sum |x|; where the sum is zero, the activations are zero.
    """

    kind: Literal[
        "sigmoid",
        "tanh",
        "relu",
        "selu",
        "softplus",
        "softsign",
        "linear",
        "gelu",
        "silu",
        "softmax",
        "relu_max",
        "linear_max",
    ]
    """Its name."""


class LeakyRelu(Spec):
    """The larger of x and slope * x: up to a slope of 1, x where positive and slope * x elsewhere."""

    kind: Literal["leaky_relu"]
    """Its name."""
    slope: float = 0.01
    """Slope for negative x; 1 makes it linear. Above 1 the slope for positive x, as DSSTNE has it. Below 0
    the units are never negative.
    """


class Elu(Spec):
    """scale * x where positive, scale * alpha * (exp(x) - 1) elsewhere."""

    kind: Literal["elu"]
    """Its name."""
    alpha: Positive = 1.0
    """Depth of the negative side."""
    scale: Positive = 1.0
    """Factor on both sides; with alpha 1.6733 and scale 1.0507 it is selu."""


ROW_WISE = ("softmax", "relu_max", "linear_max")
"""The activations that divide by a sum over the whole layer."""

RESTING = ("sigmoid", "tanh", "relu", "linear", "leaky_relu", "elu", "selu")
"""The activations whose silenced units have a rest value."""

Activation = PlainActivation | LeakyRelu | Elu
ActivationField = named(Activation)


class PlainPooling(Spec):
    """A pooling function without numbers of its own.

    max and average look at the window of a kernel at each place of each channel; an average counts no
    padding. The others need no kernel: maxout gives the largest of all sources, unit by unit. With sources
    x0, x1 to xn, dot_product gives n units <x0, xi>, and cosine n units <x0, xi> / ((|x0| + 1e-8) (|xi| +
    1e-8)).
    """

    kind: Literal["max", "average", "maxout", "dot_product", "cosine"]
    """Its name."""


class LocalResponseNormalization(Spec):
    """x / (k + alpha / n * sum of the squares of the n channels around x at its place) ^ beta."""

    kind: Literal["lrn"]
    """Its name."""
    k: Positive = 2.0
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
