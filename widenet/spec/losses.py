"""Losses of output layers, and samples: units that stand for all others in a training step."""

from typing import Annotated, Literal

from pydantic import Field

from widenet.spec.document import Spec, named
from widenet.spec.parts import Count


class CrossEntropy(Spec):
    """Binary cross-entropy under a sigmoid, multinomial cross-entropy under a softmax.

    Sigmoid: -t log a - (1 - t) log(1 - a) for every unit, t in [0, 1]. Softmax: -sum q log a over the
    example's targets.
    """

    kind: Literal["cross_entropy"]
    """Its name."""
    targets: Literal["share", "sum"] = "share"
    """Softmax only. share: q = t / sum t, every example counts the same; sum: q = t, an example counts as
    often as it has targets.
    """


class ScaledMarginalCrossEntropy(Spec):
    """Cross-entropy that leaves units alone once they are right by a margin.

    Targets cost -one_scale * log a while a < one_target; other units cost -zero_scale * log(1 - a) while a >
    zero_target. Under a softmax only targets cost, each times its value's share of the example's values. The
    data-scaled form multiplies the cost of a target by its value, under a softmax in place of the share.
    """

    kind: Literal["scaled_marginal_cross_entropy", "data_scaled_marginal_cross_entropy"]
    """Its name."""
    one_target: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Activation at which a target costs nothing any more."""
    zero_target: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Activation up to which another unit costs nothing."""
    one_scale: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the targets."""
    zero_scale: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the other units."""


class PlainLoss(Spec):
    """A loss without numbers of its own, for every unit.

    l1: |a - t|. l2: half of (a - t)^2. hinge: max(0, 1 - t a) with t = 1 or -1: a sparse target's value, or
    1; -1 for every other unit. l2_hinge: half of d^2, d = min(0, a - |t|) for targets (t > 0), and max(0, a -
    |t|) for other units, so that nothing beyond the target costs.
    """

    kind: Literal["l1", "l2", "hinge", "l2_hinge"]
    """Its name."""


Loss = CrossEntropy | ScaledMarginalCrossEntropy | PlainLoss
LossField = named(Loss)
CROSS_ENTROPIES = ("cross_entropy", "scaled_marginal_cross_entropy", "data_scaled_marginal_cross_entropy")
"""The losses that are computed from logits: their slopes are derivatives by the logit, under a sigmoid or
a softmax.
"""


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
