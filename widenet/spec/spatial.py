"""Layers over channels and places: convolution and pooling."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from widenet.spec.activations import COMPARING, WINDOWED, PoolingField
from widenet.spec.document import Rules
from widenet.spec.parts import Count, SummingLayer, TrunkLayer


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
    transposes: ClassVar[bool] = False

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
