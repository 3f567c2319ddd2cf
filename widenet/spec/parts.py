"""Parts that several specs share: names, counts, sources, shared weights, sparseness, normalization."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from widenet.errors import DocumentError
from widenet.spec.activations import RESTING
from widenet.spec.document import Spec

NAME_PATTERN, LONGEST_NAME = r"^[^/\\\x00-\x1f]+$", 100
"""What a name in a document looks like, and its largest number of characters."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Limit = Annotated[float, Field(gt=0)]
DropoutForm = Literal["mask", "rest"]


def _several(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


_AsWritten = Name | Annotated[list[Name], Field(min_length=1)]
Sources = Annotated[
    tuple[Name, ...], BeforeValidator(_several, json_schema_input_type=_AsWritten), Field(min_length=1)
]

_AsWrittenOrNone = Name | list[Name]
SourcesOrNone = Annotated[
    tuple[Name, ...], BeforeValidator(_several, json_schema_input_type=_AsWrittenOrNone)
]


class OfLayers:
    """Facts of a kind of layer."""

    takes_features: ClassVar[bool] = False
    """Whether a sparse input may be its source."""
    goes_along: ClassVar[bool] = False
    """Whether its sources must go along a sequence."""
    shares_with: ClassVar[str] = ""
    """The layers that may share their weights with it: those that say the same; empty: none may."""
    transposes: ClassVar[bool] = True
    """Whether shared weights may be transposed."""
    colour: ClassVar[int] = 5
    """Place of its colour in pictures of networks, in `pictures.curves.COLOURS`."""

    @property
    def words(self) -> str:
        """The kind with its article, for messages: "a hidden layer", "an output layer"."""
        kind: str = getattr(self, "kind")  # noqa: B009
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} layer"

    def check(self, place: str, num_sources: int) -> None:
        """Raise DocumentError for the first broken rule that concerns this layer alone."""

    def why_not_linear(self) -> str:
        """Return why a trained layer is no linear map, after its name in a message; empty if it is one."""
        return f"is {getattr(self, 'kind')}"  # noqa: B009


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


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Shares = Annotated[
    tuple[Share, ...],
    BeforeValidator(_listed, json_schema_input_type=Share | Annotated[list[Share], Field(min_length=1)]),
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

    epsilon: Limit = 1e-5
    """Added to the variance before its root is taken."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a batch's mean and variance in the running ones; 1 keeps those of the last batch alone."""


def _switched(value: object) -> object:
    return {} if value is True else None if value is False else value


Normalization = Annotated[
    BatchNormalization | None,
    BeforeValidator(_switched, json_schema_input_type=bool | BatchNormalization | None),
]


def check_activation(
    place: str, activation: str, sparseness: Sparseness | None, dropout_form: DropoutForm
) -> None:
    """Raise DocumentError where a penalty or a form of dropout does not go with an activation."""
    if sparseness is not None and not sparseness.pull_outside and activation not in ("sigmoid", "softmax"):
        raise DocumentError(
            "needs activations between 0 and 1", place=f"{place}.sparseness", value=activation
        )
    if dropout_form == "rest" and activation not in RESTING:
        rule = f'"rest" needs one of the activations {", ".join(RESTING)}'
        raise DocumentError(rule, place=f"{place}.dropout_form", value=activation)
