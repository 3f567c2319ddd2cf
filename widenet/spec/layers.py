"""Layers: inputs, layers between, and outputs, as the network document describes them."""

from typing import Annotated, Any, ClassVar, Literal, Union, get_args

from pydantic import Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema

from widenet.spec.activations import (
    COMPARING,
    ROW_WISE,
    WINDOWED,
    ActivationField,
    PlainActivation,
    PoolingField,
)
from widenet.spec.document import Positive, Rules, Spec, kinds
from widenet.spec.initializers import InitializerField, Scaled
from widenet.spec.losses import CROSS_ENTROPIES, CrossEntropy, LossField, SampleField
from widenet.spec.parts import (
    Count,
    LayerBase,
    Name,
    Probability,
    Shares,
    Sources,
    SourcesOrNone,
    SummingLayer,
    TrunkLayer,
)

AutoUnits = Count | Literal["auto"]
NEWEST = 50
"""Default number of positions of a sequence that an input reads."""


class InputLayer(LayerBase):
    """A field of the dataset, sparse or dense, as it enters the network."""

    kind: Literal["input"]
    """Its kind."""
    field: Name
    """The dataset's field."""
    units: AutoUnits = "auto"
    """Width. auto: the field's; a larger number leaves room for features to come."""
    shape: Annotated[tuple[Count, ...], Field(min_length=2, max_length=4, strict=False)] | None = None
    """Channels and sizes of the axes, slowest first, as [1, 28, 28]; their product is the width. Unset:
    flat (dense fields only).
    """
    values: Literal["use", "ignore"] = "use"
    """ignore: every stored feature counts as one."""
    denoise: Probability = 0.0
    """Share of each example's stored features hidden at random in each training step (sparse fields only)."""
    denoise_rescale: bool = False
    """Multiply the features that stay by 1 / (1 - denoise)."""
    popularity_damping: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Divide a feature by its training count to this power, relative to a feature of mean count (sparse
    fields only).
    """
    scale: Literal["none", "mean", "rsqrt", "unit"] = "none"
    """Multiply an example's features by 1; by 1 / their number; by 1 / sqrt(their number); by 1 / their
    Euclidean length.
    """
    dropout: Probability = 0.0
    """Share of the inputs set to zero in each training step, the others rescaled (dense fields only)."""
    last: Count | None = None
    """At most this many of a sequence's newest positions are read; unset: 50 (sequence fields only)."""

    @property
    def newest(self) -> int:
        """Largest number of positions that are read of a sequence."""
        return NEWEST if self.last is None else self.last


class HiddenLayer(SummingLayer):
    """A fully connected layer: activation(sum over sources of x W, plus a bias)."""

    takes_features: ClassVar[bool] = True
    shares_with: ClassVar[str] = "hidden or output layer"

    kind: Literal["hidden"] = "hidden"
    """Its kind; a layer without a kind is hidden."""
    source: SourcesOrNone | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document; []: none,
    beside `skip`.
    """
    units: Count
    """Number of units."""
    described_by: Sources | None = None
    """Descriptions of the features of a sparse source, such as ["genre", "price"]: the weights of a feature
    are then a vector of its own plus those of its attributes, also where other layers share them.
    """
    weight_norm: Positive | None = None
    """Largest Euclidean length of a unit's incoming weights, per source; longer ones are shortened after each
    step.

    Over a sparse input every step then reads all weights of the source. Rows that no batch touched lately
    count as they were left.
    """
    split: bool | None = None
    """Cut the layer's weights into shards of units, so that each process holds and updates only its share.

    Unset: weights of 16 MiB or more are cut if they and their state take at least the bytes that a step then
    sends. Weights from sparse inputs are always cut, by features; weights that layers share never are.
    """

    def why_not_linear(self) -> str:
        """Return the activation as the reason, unless it is linear."""
        return "" if self.activation.kind == "linear" else f"has the activation {self.activation.kind}"


def _form(value: object) -> str:
    return next(
        (name for kind, name in ((list | tuple, "list"), (str, "word")) if isinstance(value, kind)), "number"
    )


_Size = Annotated[int, Field(ge=1, le=2**20)]
_Room = Annotated[int, Field(ge=0, le=2**20)]
_Sizes = Annotated[tuple[_Size, ...], Field(min_length=1, max_length=3, strict=False)]
_Rooms = Annotated[tuple[_Room, ...], Field(min_length=1, max_length=3, strict=False)]
_Word = Literal["same", "valid", "dsstne"]
PerAxis = Annotated[
    Annotated[_Size, Tag("number")] | Annotated[_Sizes, Tag("list")] | Annotated[_Size, Tag("word")],
    Discriminator(_form),
]
Padding = Annotated[
    Annotated[_Room, Tag("number")] | Annotated[_Rooms, Tag("list")] | Annotated[_Word, Tag("word")],
    Discriminator(_form),
]


class ConvolutionLayer(SummingLayer):
    """Filters moved over the places of a source: activation(sum over sources of x * w, plus a bias).

    The filters are not flipped, as everywhere in deep learning.
    Its units are the filters, each at every position: all positions of the first filter, then those of the
    second. The source has channels and one, two or three axes of places: it is an input layer with a `shape`,
    a convolution or a pooling layer. A flat source counts as one channel of as many places where `kernel` is
    a list of one, and is refused elsewhere.
    """

    shares_with: ClassVar[str] = "convolution"

    kind: Literal["convolution"]
    """Its kind."""
    filters: Count
    """Number of filters, the channels of what it gives."""
    kernel: PerAxis
    """Size of a filter along each axis, slowest first; one number: along all axes of the source."""
    stride: PerAxis = 1
    """Places from one position of a filter to the next, along each axis or along all."""
    padding: Padding = "same"
    """Zeros around the places. same: so many that every stride-th place has a position; valid: none; or how
    many on each side of each axis.

    dsstne: along an axis no longer than the kernel one position, at stride 1 as of same, else none.
    """
    split: bool | None = None
    """Divide the examples of the network's first layers among the shards in a training step, so that each
    process computes and keeps its own; their gradients are added exactly.

    These are all convolutions and pooling layers from the dense inputs on, up to a convolution with dropout,
    normalization, sparseness, delta_norm, shared weights or false here. True needs this layer among them, and
    divides them all. Unset: divide them if their units in a batch take 64 MiB or more, and 8 bytes or more
    for each weight.
    """

    def rules(self, num_sources: int) -> Rules:
        """Return the rules of its axes too."""
        return super().rules(num_sources) + _of_axes(self)


class PoolingLayer(TrunkLayer):
    """A layer without weights.

    It gives the largest or the mean unit of a window, a normalization across channels, or a comparison of
    sources.
    """

    kind: Literal["pooling"]
    """Its kind."""
    function: PoolingField
    """Function of the source."""
    kernel: PerAxis | None = None
    """Size of the window along each axis, slowest first; one number: along all axes of the source (max and
    average only).
    """
    stride: PerAxis | None = None
    """Places from one window to the next, along each axis or along all; unset: the kernel, so that windows
    lie side by side.
    """
    padding: Padding = "same"
    """Positions beyond the edges that windows may cover; they never count. As for a
    [convolution](#convolution-layers).
    """

    def rules(self, num_sources: int) -> Rules:
        """Return the rules by which sources and windows go with the function."""
        function = self.function.kind
        is_right, wanted = num_sources == 1, "one layer"
        if function in COMPARING:
            is_right, wanted = num_sources >= 2, "at least two layers"
        rules: Rules = [("source", not is_right, f'must name {wanted} for "{function}"', num_sources)]
        if function not in WINDOWED:
            fields, rule = type(self).model_fields, "belongs to the functions max and average"
            keys = ("kernel", "stride", "padding")
            return rules + [(key, getattr(self, key) != fields[key].default, rule, function) for key in keys]
        rules.append(("kernel", self.kernel is None, f'is missing for "{function}"'))
        return rules if self.kernel is None else rules + _of_axes(self)


def _of_axes(layer: ConvolutionLayer | PoolingLayer) -> Rules:
    """Return the rules by which lists have one length, and windows cover more than padding."""
    written = {"kernel": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    num = next((len(value) for value in written.values() if isinstance(value, tuple)), 1)
    by_axis: dict[str, tuple[Any, ...]] = {
        key: value if isinstance(value, tuple) else (value,) * num for key, value in written.items()
    }
    one = f"must have one number an axis, {num} as others here"
    rules: Rules = [(key, len(values) != num, one, len(values)) for key, values in by_axis.items()]
    for size, room in zip(by_axis["kernel"], by_axis["padding"], strict=False):
        is_more = not isinstance(room, str) and room >= size
        rules.append(("padding", is_more, f"must be less than the kernel, {size}", room))
    return rules


class RecurrentLayer(TrunkLayer):
    """A layer along a sequence: each position's state follows from the state before and the position's input.

    All its sources go along one sequence.
    gru: Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine
    translation", EMNLP 2014, with the reset gate behind the product, as cuDNN and torch have it. lstm:
    Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997, with forget gates,
    whose biases start with 1.
    """

    takes_features: ClassVar[bool] = True
    goes_along: ClassVar[bool] = True

    kind: Literal["recurrent"]
    """Its kind."""
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of the step from one state to the next. Its activations are sigmoid and tanh."""
    units: Count
    """Numbers in its state."""
    bias: bool = True
    """Add learned biases."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights of the sources and of the previous state; `out` counts the units."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""
    dropout: Probability = 0.0
    """Share of the state's numbers set to zero in the output in each training step, the others rescaled.

    The next state uses all numbers.
    """
    split: bool | None = None
    """Cut the weights of the gates into shards of rows, so that each process holds and updates only its
    share; the cells are computed in every process.

    Unset: weights of 16 MiB or more are cut if they and their state take at least the bytes that a step of
    `last` positions in each example then sends. Weights from sparse inputs are always cut, by features.
    """

    @property
    def sums(self) -> int:
        """Numbers that its sources are multiplied into: one a gate and unit."""
        return self.units * {"gru": 3, "lstm": 4}[self.cell]

    @property
    def biases(self) -> int:
        """Number of its biases: of a GRU, the candidate has one for its sources and one for its state."""
        return 4 * self.units


class AttentionLayer(TrunkLayer):
    """A block of causal self-attention: each position reads its source at its own and at earlier positions.

    x + dropout(attention(normalized x)), then the same around two fully connected layers at each position.
    It has as many units as its source. Kang and McAuley, "Self-attentive sequential recommendation", ICDM
    2018, section III.
    """

    goes_along: ClassVar[bool] = True

    kind: Literal["attention"]
    """Its kind."""
    heads: Count = 1
    """Parts of the units that attend to positions by themselves; it divides the number of units."""
    positions: Literal["relative", "absolute", "none"] = "relative"
    """How the block tells positions apart, by learned vectors of which each head has its part.

    relative: one for each distance, added to the keys of the positions so far back. absolute: one for each
    position, counted from the oldest that is read and added to the source, as the first of several blocks has
    them. none: not at all.
    """
    feed_forward: Count | None = None
    """Units of the first of the two fully connected layers; unset: as many as the block has."""
    activation: ActivationField = PlainActivation(kind="relu")
    """Activation of these units."""
    dropout: Probability = 0.0
    """Share of the numbers set to zero in each training step, of what attention and what the fully connected
    layers add to the source; the others are rescaled.
    """
    normalize_output: bool = False
    """Normalize the output too, as after the last of several blocks."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights and vectors of positions."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""

    def rules(self, num_sources: int) -> Rules:
        """Return the rule by which it has one source."""
        return [("source", num_sources != 1, "of an attention layer must be one layer", num_sources)]


class Cosine(Spec):
    """Score by the cosine between the example's vector and the unit's, instead of by their product."""

    temperature: Positive = 0.1
    """The cosine is divided by this before the bias is added."""
    prediction_temperature: Positive | None = None
    """The temperature of evaluations and recommendations; unset: `temperature`. A higher one gives the bias,
    and so popular units, more weight. Training minimizes the loss at `temperature`.
    """

    @property
    def finished(self) -> float:
        """The temperature outside training."""
        return self.temperature if self.prediction_temperature is None else self.prediction_temperature


class DeltaBoost(Spec):
    """Factors on the gradients by the logits; the reported loss leaves them out."""

    target: Annotated[float, Field(ge=0)] = 1.0
    """Of the example's targets."""
    other: Annotated[float, Field(ge=0)] = 1.0
    """Of all other units."""


Order = Literal["use", "forward", "ignore"]
"""How a neighbourhood term reads a sequence."""


class Neighbourhood(Spec):
    """Add to a finished network's logits how often the units occurred together with the example's features.

    The term of unit j is weight * log(1 + s_j / floor), where s_j is the mean over the example's features i
    of c_ij / sqrt(n_i n_j), times (n_j / n)^popularity: c_ij training examples have both i and j, n_i have i,
    and n have the most frequent feature. All training examples count, and each unit keeps its largest.
    Training minimizes the loss without the term. A feature that a sequence has several times counts once.
    """

    weight: Positive = 0.6
    """Factor on the term."""
    floor: Positive = 0.01
    """Similarity below which the term is in proportion to it; above, it grows with its logarithm."""
    neighbours: Count = 25
    """Features that each unit keeps: those with the largest c_ij^2 / n_i, of equal ones the first."""
    popularity: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Exponent of a unit's frequency in its similarities. 0: rare and frequent units count alike."""
    order: Order = "ignore"
    """use: of a sequence, two features that are d places apart add 1 / d to c_ij, and in the mean the newest
    feature has the weight 1, the one before it 1 / 2, the next 1 / 3, and so on. Of a feature that occurs
    several times, all places but the last are taken out before. forward: the same, but a pair counts for j
    alone, the feature that comes later.
    """
    fit: bool = False
    """Choose all these settings anew when training ends: by the metric of
    `evaluation`, on the validation part. Until then, and if the gain is not surely 1 %, these hold.
    """

    @property
    def in_order(self) -> bool:
        """Whether places in a sequence count."""
        return self.order != "ignore"


class OutputLayer(LayerBase):
    """A fully connected layer that predicts a field of the dataset, with its loss."""

    shares_with: ClassVar[str] = "hidden or output layer"

    kind: Literal["output"]
    """Its kind."""
    field: Name
    """The dataset's field that holds the targets."""
    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
    units: AutoUnits = "auto"
    """Width. auto: the field's; a larger number leaves room for units to come."""
    activation: ActivationField = PlainActivation(kind="softmax")
    """Function applied to the logits."""
    loss: LossField = CrossEntropy(kind="cross_entropy")
    """The loss to minimize."""
    loss_weight: Positive = 1.0
    """Factor on the loss, for networks of several outputs."""
    predict: Literal["all", "hidden", "next"] = "all"
    """all: every target of the example; hidden: only those that an input's `denoise` hid from it in this
    step; next: at every position of a sequence its next feature.
    """
    values: Literal["use", "ignore"] = "use"
    """ignore: every stored target counts as one."""
    others: Literal["use", "ignore"] = "use"
    """ignore: units of which nothing is stored cost nothing and are left alone (sparse fields, activations
    of single units).
    """
    delta_boost: DeltaBoost | None = None
    """Factors on the gradients of targets and of other units."""
    delta_norm: Positive | None = None
    """Largest Euclidean length of the gradient of an example's own loss by its logits; a longer one is
    shortened.

    Under "next" each position counts as an example. A step takes all units at once, so there should be few;
    not beside "sample".
    """
    cosine: Cosine | None = None
    """Score by cosine instead of by product."""
    neighbourhood: Neighbourhood | None = None
    """A term from counts of features that occur together, for evaluation and recommendations."""
    repeats: Annotated[tuple[float, ...], Field(min_length=1, strict=False)] | None = None
    """Numbers that evaluation and recommendations add to the logits of features that the sequence has
    already, with "predict": "next".

    The first is for its newest feature, the second for the one before it, and so on; the last is also for all
    older ones. If a feature occurs several times, its newest position counts. Training minimizes the loss
    without them.
    """
    bias: bool = True
    """Add a learned bias to each unit."""
    bias_start: float = 0.0
    """Value that every bias starts with."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights."""
    frozen: bool = False
    """Leave all weights that the layer uses as the training begins with them, to the bit."""
    weights: Shares | None = None
    """Weights shared with another layer."""
    described_by: Sources | None = None
    """Descriptions of the field's features, such as ["genre", "price"]: the weights of a unit are then a
    vector of its own plus those of its attributes. Units after the last one that the training part has take
    no part in the loss, and have no vector of their own. Their biases are the smallest of the others.
    """
    weight_norm: Positive | None = None
    """Largest Euclidean length of a unit's incoming weights; longer ones are shortened after each step."""
    weightless: bool = False
    """Take the units of the source as logits, as they are; the source has as many units. Needs "bias":
    false.
    """
    sample: SampleField | None = None
    """Train on the batch's targets and some other units instead of all: an approximation. Unset: all
    units, the exact loss.
    """

    @property
    def term(self) -> str | None:
        """The setting that adds numbers of an example's features to the logits outside training."""
        return next((name for name in ("neighbourhood", "repeats") if getattr(self, name) is not None), None)

    @property
    def is_row_wise(self) -> bool:
        """Whether the activation divides by a sum over the whole layer."""
        return self.activation.kind in ROW_WISE

    @property
    def is_closed(self) -> bool:
        """Whether the activation is a softmax, and the loss has slopes in closed form under it."""
        return self.activation.kind == "softmax" and self.loss.kind in CROSS_ENTROPIES


Trunk = HiddenLayer | ConvolutionLayer | PoolingLayer | RecurrentLayer | AttentionLayer
"""The layers between inputs and outputs."""
Layer = InputLayer | Trunk | OutputLayer


def _kind(value: object) -> str | None:
    kind = value.get("kind", "hidden") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


class _ByKind:
    """Tells the layers of a union apart by `kind`; one without is hidden."""

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        tagged = tuple(Annotated[spec, Tag(kind)] for spec in get_args(union) for kind in kinds(spec))
        return handler.generate_schema(Annotated[Union[tagged], Discriminator(_kind)])  # noqa: UP007


LayerField = Annotated[Layer, _ByKind()]
