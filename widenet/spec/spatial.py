"""Layers over channels and places: convolution and pooling."""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from widenet.errors import DocumentError
from widenet.spec.activations import COMPARING, WINDOWED, ActivationField, PlainActivation, PoolingField
from widenet.spec.document import Spec
from widenet.spec.initializers import InitializerField, Xavier
from widenet.spec.parts import (
    Count,
    DropoutForm,
    Limit,
    Name,
    Normalization,
    OfLayers,
    Probability,
    Shares,
    Sources,
    Sparseness,
    check_activation,
)


def _form(value: object) -> str:
    return next(
        (name for kind, name in ((list | tuple, "list"), (str, "word")) if isinstance(value, kind)), "number"
    )


_Size = Annotated[int, Field(ge=1, le=2**20)]
_Room = Annotated[int, Field(ge=0, le=2**20)]
_Sizes = Annotated[tuple[_Size, ...], Field(min_length=1, max_length=3)]
_Rooms = Annotated[tuple[_Room, ...], Field(min_length=1, max_length=3)]
_Word = Literal["same", "valid", "dsstne"]
PerAxis = Annotated[
    Annotated[_Size, Tag("number")] | Annotated[_Sizes, Tag("list")] | Annotated[_Size, Tag("word")],
    Discriminator(_form),
]
Padding = Annotated[
    Annotated[_Room, Tag("number")] | Annotated[_Rooms, Tag("list")] | Annotated[_Word, Tag("word")],
    Discriminator(_form),
]


class ConvolutionLayer(Spec, OfLayers):
    """Filters moved over the places of a source: activation(sum over sources of x * w, plus a bias).

    The filters are not flipped, as everywhere in deep learning.
    Its units are the filters, each at every position: all positions of the first filter, then those of the
    second. The source has channels and one, two or three axes of places: it is an input layer with a `shape`,
    a convolution or a pooling layer. A flat source counts as one channel of as many places where `kernel` is
    a list of one, and is refused elsewhere.
    """

    shares_with: ClassVar[str] = "convolution"
    transposes: ClassVar[bool] = False
    colour: ClassVar[int] = 4

    kind: Literal["convolution"]
    """Its kind."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
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
    activation: ActivationField = PlainActivation(kind="sigmoid")
    """Function applied to the sums."""
    bias: bool = True
    """Add a learned bias to each filter."""
    bias_start: float = 0.0
    """Value that every bias starts with."""
    initializer: InitializerField = Xavier(kind="xavier")
    """Weights to start with; `in` counts the weights of a filter, `out` filters times the kernel's places."""
    frozen: bool = False
    """Leave all weights that the layer uses as the training begins with them, to the bit.

    A batch normalization then uses its running statistics.
    """
    weights: Shares | None = None
    """Filters shared with another convolution, or with several, each for one of the sources."""
    dropout: Probability = 0.0
    """Share of the units set to zero in each training step, the others rescaled by 1 / (1 - dropout)."""
    dropout_form: DropoutForm = "mask"
    """mask: as above. rest: sigmoid units become 0.5 and none is rescaled; elu and selu units become the
    activation's lower limit, and the layer is brought back to mean 0 and variance 1 (alpha dropout, Klambauer
    et al., 2017); others become 0 and the rest is rescaled. The gradient of every unit, silenced or not, then
    takes the activation's slope at its value after dropout.

    rest needs one of sigmoid, tanh, relu, linear, leaky_relu, elu, selu.
    """
    sparseness: Sparseness | None = None
    """Penalty on the mean activation of each unit, a filter at a position; needs activations in (0, 1)."""
    delta_norm: Limit | None = None
    """Largest Euclidean length of the gradient of an example's own loss by the layer's sums; a longer one
    is shortened.
    """
    batch_normalization: Normalization = None
    """Normalization of the sums, by filter, before the activation; true: with its defaults."""
    skip: Sources | None = None
    """Layers of as many units that are added to the sums, before a normalization and the activation."""
    split: bool | None = None
    """Divide the examples of the network's first layers among the shards in a training step, so that each
    process computes and keeps its own; their gradients are added exactly.

    These are all convolutions and pooling layers from the dense inputs on, up to a convolution with dropout,
    normalization, sparseness, delta_norm, shared weights or false here. True needs this layer among them, and
    divides them all. Unset: divide them if their units in a batch take 64 MiB or more, and 8 bytes or more
    for each weight.
    """

    def check(self, place: str, num_sources: int) -> None:
        """See `OfLayers.check`."""
        check_activation(place, self.activation.kind, self.sparseness, self.dropout_form)
        _check_axes(place, self)


class PoolingLayer(Spec, OfLayers):
    """A layer without weights.

    It gives the largest or the mean unit of a window, a normalization across channels, or a comparison of
    sources.
    """

    colour: ClassVar[int] = 6

    kind: Literal["pooling"]
    """Its kind."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer or layers it takes its input from; unset: the layer before it in the document."""
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
    skip: Sources | None = None
    """Layers of as many units that are added to what it gives."""

    def check(self, place: str, num_sources: int) -> None:
        """See `OfLayers.check`."""
        function = self.function.kind
        windows = {"kernel": self.kernel, "stride": self.stride, "padding": self.padding}
        if function in COMPARING and num_sources < 2:
            rule = f'must name at least two layers for "{function}"'
            raise DocumentError(rule, place=f"{place}.source", value=num_sources)
        if function not in COMPARING and num_sources > 1:
            rule = f'must name one layer for "{function}"'
            raise DocumentError(rule, place=f"{place}.source", value=num_sources)
        if function in WINDOWED and self.kernel is None:
            raise DocumentError(f'is missing for "{function}"', place=f"{place}.kernel")
        given = [key for key, value in windows.items() if value != type(self).model_fields[key].default]
        if function not in WINDOWED and given:
            rule = "belongs to the functions max and average"
            raise DocumentError(rule, place=f"{place}.{given[0]}", value=function)
        if self.kernel is not None:
            _check_axes(place, self)


def _check_axes(place: str, layer: ConvolutionLayer | PoolingLayer) -> None:
    """Lists of one length, and windows that cover more than padding."""
    written = {"kernel": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    listed = {key: len(value) for key, value in written.items() if isinstance(value, tuple)}
    for key, length in listed.items():
        first = next(iter(listed))
        if length != listed[first]:
            rule = f"must have one number an axis, {listed[first]} as {first}"
            raise DocumentError(rule, place=f"{place}.{key}", value=length)
    if isinstance(layer.padding, str):
        return
    kernel = layer.kernel if isinstance(layer.kernel, tuple) else (layer.kernel,)
    padding = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,)
    num = max(len(kernel), len(padding))
    for size, room in zip(kernel * (num // len(kernel)), padding * (num // len(padding)), strict=True):
        if size is not None and room >= size:
            raise DocumentError(f"must be less than the kernel, {size}", place=f"{place}.padding", value=room)
