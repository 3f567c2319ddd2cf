"""Activations: what a layer makes of the sum of its inputs."""

from typing import Annotated, Literal

from pydantic import Field

from widenet.spec.document import Spec
from widenet.spec.named import named

_Plain = Literal[
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


class PlainActivation(Spec):
    """An activation without numbers of its own.

    The last three look at the whole layer: softmax gives exp(x) / sum exp(x), relu_max max(x, 0) / sum max(x,
    0), linear_max x / sum |x|; where the sum is zero, the activations are zero.
    """

    kind: _Plain
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
    alpha: Annotated[float, Field(gt=0)] = 1.0
    """Depth of the negative side."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor on both sides; with alpha 1.6733 and scale 1.0507 it is selu."""


ROW_WISE = ("softmax", "relu_max", "linear_max")
"""The activations that divide by a sum over the whole layer."""

RESTING = ("sigmoid", "tanh", "relu", "linear", "leaky_relu", "elu", "selu")
"""The activations whose silenced units have a rest value."""

Activation = PlainActivation | LeakyRelu | Elu
ActivationField = named(Activation)
