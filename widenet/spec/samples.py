"""Samples: units that stand for all others in a training step."""

from typing import Annotated, Literal

from pydantic import Field

from widenet.spec.document import Spec
from widenet.spec.named import named
from widenet.spec.parts import Count


class UniformSample(Spec):
    """Every unit is as likely to be drawn."""

    kind: Literal["uniform"]
    """Its name."""
    units: Count = 10_000
    """Draws in a step, at most the width, shared by the examples of the batch."""


class PopularitySample(Spec):
    """A unit's chance is in proportion to (its training count + 1)^power.

    Mikolov et al., NeurIPS 2013, draw words with power 0.75.
    """

    kind: Literal["popularity"]
    """Its name."""
    units: Count = 10_000
    """Draws in a step, at most the width, shared by the examples of the batch."""
    power: Annotated[float, Field(gt=0, le=2)] = 0.75
    """The larger it is, the more often popular units are drawn."""


Sample = UniformSample | PopularitySample
SampleField = named(Sample)
