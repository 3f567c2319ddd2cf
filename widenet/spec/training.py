"""training.json: how a network is trained."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from widenet.errors import DocumentError
from widenet.spec.document import Document, Positive, Spec
from widenet.spec.metric_names import LARGER_IS_BETTER
from widenet.spec.optimizers import Adam, ConstantSchedule, OptimizerField, ScheduleField
from widenet.spec.parts import Count

MOST_SHARDS = 1024
Strength = Annotated[float, Field(ge=0)]


class Evaluation(Spec):
    """Ranking metrics while training, on a part of the dataset that training does not see."""

    every_epochs: Count = 1
    """Epochs between two evaluations; the last epoch is always evaluated."""
    metric: Annotated[str, Field(pattern=f"^({'|'.join(LARGER_IS_BETTER)})@[1-9][0-9]*$")] = "ndcg@20"
    """The metric that decides which checkpoint is best, the largest: NAME@K, of any metric but popularity."""
    part: Literal["validation", "heldout"] = "validation"
    """The part of the dataset to rank. Choosing by "heldout" makes its figures too good."""
    output: str | None = None
    """The output layer to rank; unset where the network has one."""
    seen: Literal["exclude", "include"] = "exclude"
    """Whether what an example has already is ranked: included where it may come again, as words do."""
    stop_after: Count | None = None
    """End the training after this many evaluations without a better metric; unset: never."""


class Checkpoints(Spec):
    """When a training saves its whole state, and how many checkpoints it keeps."""

    every_epochs: Count = 1
    """Epochs between two checkpoints; the end and an interruption always write one."""
    min_seconds: Annotated[float, Field(ge=0)] = 5.0
    """An epoch that ends within these seconds after the newest checkpoint has none, so that a training of
    many short epochs does not wait for the disk; 0: all have one. The last epoch and one that is kept as the
    best always have one.
    """
    every_steps: Count | None = None
    """Also save after this many steps, within epochs; unset: no step counts."""
    keep_last: Count = 2
    """Number of newest checkpoints that are kept. With two, a training whose newest checkpoint is damaged
    resumes from the one before it.
    """


class TrainingSpec(Document):
    """The training of a network: optimizer, schedule, batches, epochs, seed."""

    usual_name: ClassVar[str] = "training.json"
    epochs: Count = 10
    """Passes over the training examples."""
    batch_size: Count = 256
    """Examples in a step."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Start of every random stream."""
    shuffle: bool = True
    """A new order of the examples in every epoch."""
    optimizer: OptimizerField = Adam(kind="adam")
    """The rule that turns gradients into steps."""
    schedule: ScheduleField = ConstantSchedule(kind="constant")
    """Schedule of the learning rate."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly to its schedule."""
    l1: Strength = 0.0
    """Weight of the sum of |w| in the objective. Biases are not penalized; the reported loss does not
    include it.
    """
    l2: Strength = 0.0
    """Weight of half the sum of w^2 in the objective. Biases are not penalized; the reported loss does not
    include it.
    """
    gradient_norm_limit: Positive | None = None
    """Largest Euclidean length of the whole gradient; a longer one is shortened. Costs another pass over
    wide outputs.
    """
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Precision of the operands of a step's matrix products: bfloat16 rounds them to 8 significant bits,
    tf32 to 11 on CUDA. On a CPU, tf32 is float32. Products, sums and results are float32.
    """
    bits: Literal["native", "portable"] = "native"
    """Which processors give the same bits on a CPU: native, those of one kind, at full speed; portable,
    all x86-64 with AVX2, slower.
    """
    shards: Annotated[int, Field(ge=1, le=MOST_SHARDS)] = 8
    """Number of fixed sets of units into which a wide layer is cut. It is part of the arithmetic: another
    number gives other last bits.
    """
    evaluation: Evaluation | None = None
    """Metrics while training; unset: none."""
    keep: Literal["last", "best"] = "last"
    """Which weights the run ends with: the last, or those of the best evaluation."""
    checkpoints: Checkpoints = Checkpoints()
    """When the whole state is saved, and how many of those stay."""
    track: Literal["mlflow"] | None = None
    """Also record the training in the MLflow store that MLFLOW_TRACKING_URI names, or that the command names;
    unset: in TensorBoard's files alone.
    """

    @property
    def idles(self) -> bool:
        """Whether a weight or its state still moves in steps where its gradient is zero."""
        return self.optimizer.idles or (self.optimizer.kind == "sgd" and self.l2 > 0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        rate, needs = self.optimizer.learning_rate, '"best" needs an evaluation'
        is_fast = self.optimizer.kind == "sgd" and rate * self.l2 >= 1
        DocumentError.refuse(
            str,
            ("keep", self.evaluation is None and self.keep == "best", needs),
            ("optimizer.learning_rate", is_fast, "times l2 must be less than 1", rate),
        )
        return self
