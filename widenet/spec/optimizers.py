"""Optimizers and learning-rate schedules, as the training document describes them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from widenet.spec.document import Positive, Spec, named

Decay = Annotated[float, Field(ge=0, lt=1)]


class OfOptimizers:
    """Facts of an optimizer."""

    state: ClassVar[tuple[str, ...]] = ()
    """Names of its state tensors, each zero at first and shaped like the weight, or [R, 1] where it keeps a
    number for each row. Squares, which are never negative, have the word in their name.
    """
    idles: ClassVar[bool] = False
    """Whether a weight or its state still moves in steps where its gradient is zero."""
    idle_weights_move: ClassVar[bool] = False
    """Whether the weight does."""


class Sgd(Spec, OfOptimizers):
    """w -= rate * g."""

    kind: Literal["sgd"]
    """Its name."""
    learning_rate: Positive = 0.1
    """Step size."""


class Momentum(Spec, OfOptimizers):
    """v = momentum * v + g; w -= rate * v. Under nesterov, w -= rate * (g + momentum * v)."""

    state: ClassVar[tuple[str, ...]] = ("velocity",)
    idles: ClassVar[bool] = True
    idle_weights_move: ClassVar[bool] = True

    kind: Literal["momentum", "nesterov"]
    """Its name."""
    learning_rate: Positive = 0.05
    """Step size."""
    momentum: Decay = 0.9
    """Share of the velocity that stays."""


class Adagrad(Spec, OfOptimizers):
    """s += g^2; w -= rate * g / (sqrt(s) + epsilon). Duchi, Hazan and Singer, JMLR 2011.

    The weights of sparse inputs and outputs may share one s for each row, as in TorchRec's row-wise Adagrad.
    """

    state: ClassVar[tuple[str, ...]] = ("square_sum",)

    kind: Literal["adagrad"]
    """Its name."""
    learning_rate: Positive = 0.05
    """Step size."""
    per_row: bool = False
    """Whether each row of a sparse input's or an output's weight has a single s, to which each step adds the
    mean of the row's g^2. This needs less memory. All other weights keep an s for each number.
    """
    epsilon: Positive = 1e-10
    """Keeps the division finite."""
    floor: Positive | None = None
    """Smallest s whose root divides: a smaller one counts as this much. If set, `epsilon` is not added."""


class Rmsprop(Spec, OfOptimizers):
    """s = decay * s + (1 - decay) * g^2; w -= rate * g / (sqrt(s) + epsilon). Tieleman and Hinton, 2012."""

    state: ClassVar[tuple[str, ...]] = ("square",)
    idles: ClassVar[bool] = True

    kind: Literal["rmsprop"]
    """Its name."""
    learning_rate: Positive = 0.001
    """Step size."""
    decay: Decay = 0.99
    """Share of the mean square that stays."""
    epsilon: Positive = 1e-8
    """Keeps the division finite."""
    floor: Positive | None = None
    """Smallest s whose root divides: a smaller one counts as this much. If set, `epsilon` is not added."""


class Adadelta(Spec, OfOptimizers):
    """Steps in the ratio of the mean squares of past steps and gradients.

    Zeiler, arXiv 1212.5701, algorithm 1.
    """

    state: ClassVar[tuple[str, ...]] = ("square", "step_square")
    idles: ClassVar[bool] = True

    kind: Literal["adadelta"]
    """Its name."""
    learning_rate: Positive = 1.0
    """Factor on the step."""
    decay: Decay = 0.9
    """Share of both mean squares that stays."""
    epsilon: Positive = 1e-6
    """Lets the first step begin, and keeps the division finite."""
    floor: Positive | None = None
    """Smallest mean square whose root is taken: a smaller one counts as this much. If set, `epsilon` is not
    added.
    """


class OfMoments(Spec, OfOptimizers):
    """Settings of Adam and of its variant with decoupled weight decay."""

    state: ClassVar[tuple[str, ...]] = ("mean", "square")

    kind: str
    """Its name."""
    learning_rate: Positive = 0.001
    """Step size."""
    beta1: Decay = 0.9
    """Share of the mean gradient that stays."""
    beta2: Decay = 0.999
    """Share of the mean square that stays."""
    epsilon: Positive = 1e-8
    """Keeps the division finite."""


class Adam(OfMoments):
    """Adam.

    Kingma and Ba, ICLR 2015, algorithm 1. On wide sparse inputs lazy: only rows that a batch touches move.
    """

    kind: Literal["adam"]
    """Its name."""
    step_offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Steps added to t in the correction of the moments: with 1 the first step has t = 2, and is shorter."""


class AdamW(OfMoments):
    """Adam whose weight decay does not pass through the moments.

    Loshchilov and Hutter, ICLR 2019, algorithm 2.
    """

    kind: Literal["adamw"]
    """Its name."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """w -= rate * weight_decay * w in each step; biases are left alone."""


Optimizer = Sgd | Momentum | Adagrad | Rmsprop | Adadelta | Adam | AdamW
OptimizerField = named(Optimizer)


class OptimizerSettings(Spec):
    """Settings that a network needs of the optimizer, whatever the training document says.

    An optimizer without one of these settings ignores it.
    """

    floor: Positive | None = None
    """`floor` of adagrad, rmsprop and adadelta; unset: as the training document says."""
    step_offset: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """`step_offset` of adam; unset: as the training document says."""

    def applied_to(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer with these settings in place of its own."""
        settings = self.model_dump(exclude_none=True)
        own = {name: value for name, value in settings.items() if name in type(optimizer).model_fields}
        return optimizer.model_copy(update=own)


class ConstantSchedule(Spec):
    """A constant learning rate."""

    kind: Literal["constant"]
    """Its name."""


class StepSchedule(Spec):
    """rate * factor^floor(epoch / every_epochs)."""

    kind: Literal["step"]
    """Its name."""
    every_epochs: Annotated[int, Field(ge=1)] = 10
    """Epochs between two drops."""
    factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Factor of a drop."""


class ExponentialSchedule(Spec):
    """rate * factor^epoch, falling smoothly with every step."""

    kind: Literal["exponential"]
    """Its name."""
    factor: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Factor over one epoch."""


class InverseSchedule(Spec):
    """rate / (1 + decay * steps): DSSTNE's decay."""

    kind: Literal["inverse"]
    """Its name."""
    decay: Annotated[float, Field(ge=0)] = 0.001
    """Growth of the divisor in a step."""


class CosineSchedule(Spec):
    """From rate down to rate * floor along half a cosine over the whole training.

    Loshchilov and Hutter, ICLR 2017, equation 5.
    """

    kind: Literal["cosine"]
    """Its name."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the rate left at the end."""


Schedule = ConstantSchedule | StepSchedule | ExponentialSchedule | InverseSchedule | CosineSchedule
ScheduleField = named(Schedule)
