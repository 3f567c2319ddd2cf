"""The windows of convolutions and pooling layers: how a kernel moves over its source."""

from dataclasses import dataclass
from math import prod
from typing import Any

from widenet.errors import FitError
from widenet.spec.layers import Layer
from widenet.spec.network import NetworkSpec
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

Shape = tuple[int, ...]
"""Shape of a layer's units: (units,) if flat, else channels and the sizes of its axes, slowest first."""


@dataclass(frozen=True)
class Place:
    """A layer of a document."""

    document: str
    index: int
    name: str

    @classmethod
    def find(cls, spec: NetworkSpec, layer: Layer) -> "Place":
        """Return the place of a layer."""
        return cls(spec.where, spec.layers.index(layer), layer.name)

    def of(self, key: str) -> str:
        """Return the place of a setting: document, JSON path and the layer's name."""
        return f'{self.document}: layers[{self.index}].{key} ("{self.name}")'

    def refuse(self, key: str, is_wrong: object, rule: str, **value: Any) -> None:
        """Raise FitError for a setting that is wrong, with the rule that it breaks, and maybe a `value`."""
        if is_wrong:
            raise FitError(rule, place=self.of(key), **value)


@dataclass(frozen=True)
class Axis:
    """A window's movement along one axis.

    Attributes:
        places: Size of the axis.
        kernel: Size of the window.
        stride: Distance between positions.
        positions: Number of positions.
        before: Padding before the first place.
        after: Padding after the last place.
    """

    places: int
    kernel: int
    stride: int
    positions: int
    before: int
    after: int


@dataclass(frozen=True)
class Windows:
    """A window's movement over channels."""

    channels: int
    axes: tuple[Axis, ...]

    @property
    def places(self) -> Shape:
        """Sizes of the source's axes."""
        return tuple(axis.places for axis in self.axes)

    @property
    def kernel(self) -> Shape:
        """Sizes of the window."""
        return tuple(axis.kernel for axis in self.axes)

    @property
    def positions(self) -> Shape:
        """Number of positions along each axis."""
        return tuple(axis.positions for axis in self.axes)

    @property
    def inputs(self) -> int:
        """Numbers in a window, over all channels."""
        return self.channels * prod(self.kernel)


def windows_of(place: Place, layer: ConvolutionLayer | PoolingLayer, name: str, source: Shape) -> Windows:
    """Return the windows of a layer over a source; raises FitError if they do not fit."""
    kernel = layer.kernel
    assert kernel is not None
    if len(source) == 1:
        is_line = isinstance(kernel, tuple) and len(kernel) == 1
        place.refuse("source", not is_line, f'needs channels and axes, but "{name}" is flat')
        source = (1, *source)
    num, settings = len(source) - 1, list[tuple[Any, ...]]()
    stride = kernel if layer.stride is None else layer.stride
    for key, value in {"kernel": kernel, "stride": stride, "padding": layer.padding}.items():
        values = value if isinstance(value, tuple) else (value,) * num
        place.refuse(
            key,
            len(values) != num,
            f'must have one number for each of the {num} axes of "{name}"',
            value=len(values),
        )
        settings.append(values)
    axes = tuple(map(axis_of, source[1:], *settings))
    for number, axis in enumerate(axes):
        place.refuse(
            "kernel",
            axis.positions < 1,
            f'must be at most axis {number} of "{name}", {axis.places} and its padding; got {axis.kernel}',
        )
    return Windows(source[0], axes)


def axis_of(places: int, kernel: int, stride: int, padding: int | str) -> Axis:
    """Return a window's movement along one axis; it has no position if it does not fit."""
    match padding:
        case "same":
            positions = -(-places // stride)
            before = max(0, (positions - 1) * stride + kernel - places) // 2
        case "dsstne":
            positions = 1 if places <= kernel else places if stride == 1 else (places - kernel) // stride + 1
            before = (kernel - places + 1) // 2 if places <= kernel else kernel // 2 if stride == 1 else 0
        case _:
            before = padding if isinstance(padding, int) else 0
            positions = (places + 2 * before - kernel) // stride + 1
    return Axis(
        places, kernel, stride, positions, before, max(0, (positions - 1) * stride + kernel - places - before)
    )


def times(sizes: Shape) -> str:
    """Sizes for a person: "3 x 5"."""
    return " x ".join(map(str, sizes))
