"""Layers: inputs, hidden layers and outputs, as the network document describes them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from widenet.spec.activations import ActivationField, PlainActivation
from widenet.spec.document import Spec
from widenet.spec.initializers import InitializerField, Xavier
from widenet.spec.losses import CrossEntropy, LossField
from widenet.spec.samples import SampleField

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\\\x00-\x1f]+$")]
Units = Annotated[int, Field(ge=1, le=2**31 - 1)]
AutoUnits = Units | Literal["auto"]
Probability = Annotated[float, Field(ge=0, lt=1)]
Limit = Annotated[float, Field(gt=0)]
NEWEST = 50
"""Positions of a sequence that an input reads unless it is told."""


def _several(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


_AsWritten = Name | Annotated[list[Name], Field(min_length=1)]
Sources = Annotated[tuple[Name, ...], BeforeValidator(_several, json_schema_input_type=_AsWritten), Field(min_length=1)]


class Share(Spec):
    """Weights taken from another layer instead of one's own; both layers train them."""

    layer: Name
    """The layer that owns the weights."""
    layer_source: Name | None = None
    """Which of the owner's sources the weights come from; unset where it has one."""
    source: Name | None = None
    """Which of this layer's sources they serve; unset where it has one."""
    transposed: bool = False
    """Use them the other way round, as the decoder of a tied autoencoder does."""


class Sparseness(Spec):
    """A penalty that keeps the mean activation of each unit near a target: the Kullback-Leibler divergence of the two."""

    target: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The mean activation wanted over a batch."""
    weight: Annotated[float, Field(ge=0)] = 2.0
    """Weight of the penalty in the loss."""


class InputLayer(Spec):
    """A field of the dataset, sparse or dense, as it enters the network."""

    kind: Literal["input"]
    """Its kind."""
    name: Name
    """The layer's name."""
    field: Name
    """The dataset's field."""
    units: AutoUnits = "auto"
    """Width. auto: the field's; a larger number leaves room for features to come."""
    values: Literal["use", "ignore"] = "use"
    """ignore: every stored feature counts as one."""
    denoise: Probability = 0.0
    """Share of each example's stored features hidden at random in each training step (sparse fields only)."""
    denoise_rescale: bool = False
    """Multiply the features that stay by 1 / (1 - denoise)."""
    popularity_damping: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Divide a feature by its training count to this power, relative to a feature of mean count (sparse fields only)."""
    scale: Literal["none", "mean", "rsqrt", "unit"] = "none"
    """Multiply an example's features by 1; by 1 / their number; by 1 / sqrt(their number); by 1 / their Euclidean length."""
    dropout: Probability = 0.0
    """Share of the inputs set to zero in each training step, the others rescaled (dense fields only)."""
    last: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """At most this many of a sequence's newest positions are read; unset: 50 (sequence fields only)."""

    @property
    def newest(self) -> int:
        """How many positions of a sequence are read at most."""
        return NEWEST if self.last is None else self.last


class HiddenLayer(Spec):
    """A fully connected layer: activation(sum over sources of x W, plus a bias)."""

    kind: Literal["hidden"] = "hidden"
    """Its kind; a layer without a kind is hidden."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
    units: Units
    """Number of units."""
    activation: ActivationField = PlainActivation(kind="sigmoid")
    """What it makes of the sum."""
    bias: bool = True
    """Add a learned bias to each unit."""
    bias_start: float = 0.0
    """Value that every bias starts with."""
    initializer: InitializerField = Xavier(kind="xavier")
    """Weights to start with."""
    weights: Share | None = None
    """Weights shared with another layer."""
    dropout: Probability = 0.0
    """Share of the units set to zero in each training step, the others rescaled by 1 / (1 - dropout)."""
    sparseness: Sparseness | None = None
    """Penalty on the units' mean activation; needs activations in (0, 1)."""
    weight_norm: Limit | None = None
    """Largest Euclidean length of a unit's incoming weights, per source; longer ones are shortened after each step.

    Over a sparse input every step then reads all weights of the source. Rows that no batch touched lately count as they were left.
    """


class RecurrentLayer(Spec):
    """A layer that goes along a sequence: at every position it makes a state of the state before and of what stands there.

    gru: Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine translation", EMNLP 2014, with
    the reset gate behind the product, as cuDNN and torch have it. lstm: Hochreiter and Schmidhuber, "Long short-term memory",
    Neural Computation 9(8), 1997, with forget gates, whose biases start with 1.
    """

    kind: Literal["recurrent"]
    """Its kind."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer or layers it takes its input from, all along one sequence; unset: the layer before it in the document."""
    cell: Literal["gru", "lstm"] = "gru"
    """How a state follows from the one before. Its activations are sigmoid and tanh."""
    units: Units
    """Numbers in its state."""
    bias: bool = True
    """Add learned biases."""
    initializer: InitializerField = Xavier(kind="xavier")
    """Weights to start with, of the sources and of the state before."""
    dropout: Probability = 0.0
    """Share of the state's numbers that go on as zero in each training step, the others rescaled; the next state sees all."""

    @property
    def sums(self) -> int:
        """Numbers that its sources are multiplied into: one a gate and unit."""
        return self.units * {"gru": 3, "lstm": 4}[self.cell]


class Cosine(Spec):
    """Score by the cosine between the example's vector and the unit's, instead of by their product."""

    temperature: Annotated[float, Field(gt=0)] = 0.1
    """The cosine is divided by this before the bias is added."""


class OutputLayer(Spec):
    """A fully connected layer that is asked for a field of the dataset, and its loss."""

    kind: Literal["output"]
    """Its kind."""
    name: Name
    """The layer's name."""
    field: Name
    """The dataset's field that holds the targets."""
    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
    units: AutoUnits = "auto"
    """Width. auto: the field's; a larger number leaves room for units to come."""
    activation: ActivationField = PlainActivation(kind="softmax")
    """What it makes of the logits."""
    loss: LossField = CrossEntropy(kind="cross_entropy")
    """What is made small."""
    loss_weight: Annotated[float, Field(gt=0)] = 1.0
    """Factor on the loss, for networks of several outputs."""
    predict: Literal["all", "hidden", "next"] = "all"
    """all: every target of the example; hidden: only those that an input's `denoise` hid from it in this step; next: at every position
    of a sequence its next feature.
    """
    values: Literal["use", "ignore"] = "use"
    """ignore: every stored target counts as one."""
    cosine: Cosine | None = None
    """Score by cosine instead of by product."""
    bias: bool = True
    """Add a learned bias to each unit."""
    bias_start: float = 0.0
    """Value that every bias starts with."""
    bias_l2: Annotated[float, Field(ge=0)] = 0.0
    """Weight of half the squared biases in what is made small; the reported loss leaves it out."""
    initializer: InitializerField = Xavier(kind="xavier")
    """Weights to start with."""
    weights: Share | None = None
    """Weights shared with another layer."""
    weight_norm: Limit | None = None
    """Largest Euclidean length of a unit's incoming weights; longer ones are shortened after each step."""
    sample: SampleField | None = None
    """Train on the batch's targets and some other units instead of all: an approximation. Unset: all units, the exact loss."""


def _kind(value: object) -> str | None:
    kind = value.get("kind", "hidden") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


Layer = InputLayer | HiddenLayer | RecurrentLayer | OutputLayer
LayerField = Annotated[
    Annotated[InputLayer, Tag("input")]
    | Annotated[HiddenLayer, Tag("hidden")]
    | Annotated[RecurrentLayer, Tag("recurrent")]
    | Annotated[OutputLayer, Tag("output")],
    Discriminator(_kind),
]
