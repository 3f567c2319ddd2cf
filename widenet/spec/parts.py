"""Parts that several specs share: names, sources, shared weights, penalties, and the bases of layers."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from widenet.spec.activations import RESTING, ActivationField, PlainActivation
from widenet.spec.document import Positive, Rules, Spec
from widenet.spec.initializers import InitializerField, Scaled

NAME_PATTERN, LONGEST_NAME = r"^[^/\\\x00-\x1f]+$", 100
"""What a name in a document looks like, and its largest number of characters."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Probability = Annotated[float, Field(ge=0, lt=1)]


def _several(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Sources = Annotated[
    tuple[Name, ...],
    BeforeValidator(_several, json_schema_input_type=Name | Annotated[list[Name], Field(min_length=1)]),
    Field(min_length=1),
]
SourcesOrNone = Annotated[
    tuple[Name, ...], BeforeValidator(_several, json_schema_input_type=Name | list[Name])
]


class Share(Spec):
    """Weights taken from another layer instead of one's own; both layers train them."""

    layer: Name
    """The layer that owns the weights."""
    layer_source: Name | None = None
    """Which of the owner's sources the weights come from; unset where it has one."""
    source: Name | None = None
    """Which of this layer's sources they serve; unset where it has one."""
    transposed: bool = False
    """Use them the other way round, as the decoder of a tied autoencoder does (not between convolutions)."""


Shares = Annotated[
    tuple[Share, ...],
    BeforeValidator(_several, json_schema_input_type=Share | Annotated[list[Share], Field(min_length=1)]),
    Field(min_length=1),
]
"""One share, or several for as many sources."""


class Sparseness(Spec):
    """A penalty that keeps the mean activation of each unit near a target.

    It is the Kullback-Leibler divergence of the two.
    """

    target: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The desired mean activation over a batch."""
    weight: Annotated[float, Field(ge=0)] = 2.0
    """Weight of the penalty in the loss."""
    after_dropout: bool = False
    """Take the mean of the units after dropout instead of before it."""
    pull_outside: bool = False
    """Give a unit whose mean is below 1e-6 or above 1 - 1e-6 the gradient at that limit; otherwise it has
    none. Any activation may then be penalized.
    """


class BatchNormalization(Spec):
    """Bring every unit to mean 0 and variance 1 over a batch, then apply a learned scale and shift.

    A convolution does so by channel, over examples and positions. Scales start with 1, shifts with 0; "l1"
    and "l2" leave both alone. Outside training, running means of the batches' means and variances take the
    place of a batch's own. A batch of one example, without positions, has no variance and leaves them alone.
    """

    epsilon: Positive = 1e-5
    """Added to the variance before its root is taken."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a batch's mean and variance in the running ones; 1 keeps those of the last batch alone."""


def _switched(value: object) -> object:
    return {} if value is True else None if value is False else value


Normalization = Annotated[
    BatchNormalization | None,
    BeforeValidator(_switched, json_schema_input_type=bool | BatchNormalization | None),
]


class LayerBase(Spec):
    """What all layers have, and facts of each kind."""

    takes_features: ClassVar[bool] = False
    """Whether a sparse input may be its source."""
    goes_along: ClassVar[bool] = False
    """Whether its sources must go along a sequence."""
    shares_with: ClassVar[str] = ""
    """The layers that may share their weights with it: those that say the same; empty: none may."""

    kind: str
    """Its kind."""
    name: Name
    """The layer's name."""

    @property
    def shares(self) -> tuple[Share, ...]:
        """Weights that it takes from other layers."""
        return getattr(self, "weights", None) or ()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of the layers in its `skip`."""
        return getattr(self, "skip", None) or ()

    @property
    def words(self) -> str:
        """The kind with its article, for messages: "a hidden layer", "an output layer"."""
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind} layer"

    def why_not_linear(self) -> str:
        """Return why a trained layer is no linear map, after its name in a message; empty if it is one."""
        return f"is {self.kind}"

    def rules(self, num_sources: int) -> Rules:
        """Return the rules that concern this layer alone."""
        return []


class TrunkLayer(LayerBase):
    """A layer between inputs and outputs."""

    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
    skip: Sources | None = None
    """Layers of as many units that are added: to the sums, before a normalization and the activation, or to
    the output of a layer without sums.
    """


class SummingLayer(TrunkLayer):
    """A layer of sums over sources and weights, with an activation."""

    activation: ActivationField = PlainActivation(kind="sigmoid")
    """Function applied to the sums."""
    bias: bool = True
    """Add a learned bias to each unit or filter."""
    bias_start: float = 0.0
    """Value that every bias starts with."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights. For a filter, `in` counts its weights, `out` the filters times the kernel's places."""
    frozen: bool = False
    """Leave all weights that the layer uses as the training begins with them, to the bit.

    A batch normalization then uses its running statistics. `weight_norm` shortens nothing.
    """
    weights: Shares | None = None
    """Weights shared with another layer, or with several, each for one of the sources."""
    dropout: Probability = 0.0
    """Share of the units set to zero in each training step, the others rescaled by 1 / (1 - dropout)."""
    dropout_form: Literal["mask", "rest"] = "mask"
    """mask: as above. rest: sigmoid units become 0.5 and none is rescaled; elu and selu units become the
    activation's lower limit, and the layer is brought back to mean 0 and variance 1 (alpha dropout, Klambauer
    et al., 2017); others become 0 and the rest is rescaled. The gradient of every unit, silenced or not, then
    takes the activation's slope at its value after dropout.

    rest needs one of sigmoid, tanh, relu, linear, leaky_relu, elu, selu.
    """
    sparseness: Sparseness | None = None
    """Penalty on the mean activation of each unit (a filter at a position); needs activations in (0, 1)."""
    delta_norm: Positive | None = None
    """Largest Euclidean length of the gradient of an example's own loss by the layer's sums; a longer one is
    shortened.

    Along a sequence the sums at all positions of an example count together.
    """
    batch_normalization: Normalization = None
    """Normalization of the sums, by unit or filter, before the activation; true: with its defaults."""

    def rules(self, num_sources: int) -> Rules:
        """Return the rules by which the penalty and the form of dropout go with the activation."""
        activation, penalty = self.activation.kind, self.sparseness
        is_outside = penalty is not None and not penalty.pull_outside
        is_outside = is_outside and activation not in ("sigmoid", "softmax")
        has_no_rest = self.dropout_form == "rest" and activation not in RESTING
        rest = f'"rest" needs one of the activations {", ".join(RESTING)}'
        return [
            ("sparseness", is_outside, "needs activations between 0 and 1", activation),
            ("dropout_form", has_no_rest, rest, activation),
        ]
