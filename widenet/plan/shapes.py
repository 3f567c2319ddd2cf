"""The shapes of all layers, from those of the inputs on."""

from collections.abc import Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.place import Place
from widenet.plan.windows import Shape, windows_of
from widenet.spec.layers import HiddenLayer, InputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.recurrent import RecurrentLayer
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer


def shapes_of(spec: NetworkSpec, ends: Mapping[str, int]) -> dict[str, Shape]:
    """The shape of every layer, by name; raises FitError where one does not fit what feeds it.

    ends: units of the inputs and outputs, by name.
    """
    found = {name: _end(spec, name, units) for name, units in ends.items()}
    for layer in spec.hidden:
        found[layer.name] = _shape(spec, layer, found)
        _check_skip(spec, layer, found)
    return found


def _end(spec: NetworkSpec, name: str, units: int) -> Shape:
    layer = spec.layer(name)
    if not isinstance(layer, InputLayer) or layer.shape is None:
        return (units,)
    if prod(layer.shape) != units:
        rule = f'must multiply to the width of the field "{layer.field}", {units}'
        raise FitError(
            f"{Place.find(spec, layer).of('shape')} {rule}; got {list(layer.shape)}, which is"
            f" {prod(layer.shape)}."
        )
    return layer.shape


def _shape(spec: NetworkSpec, layer: Trunk, shapes: Mapping[str, Shape]) -> Shape:
    sources, place = {name: shapes[name] for name in spec.sources(layer)}, Place.find(spec, layer)
    match layer:
        case ConvolutionLayer():
            first_name = next(iter(sources))
            positions = {
                name: windows_of(place, layer, name, shape).positions for name, shape in sources.items()
            }
            other = next((name for name in positions if positions[name] != positions[first_name]), None)
            if other is not None:
                rule = (
                    f'give as many positions as "{first_name}", {times(positions[first_name])}; "{other}"'
                    " gives"
                )
                raise FitError(f"{place.of('source')} must each {rule} {times(positions[other])}.")
            return layer.filters, *positions[first_name]
        case PoolingLayer():
            return _pooled(place, layer, sources)
        case HiddenLayer() | RecurrentLayer():
            return (layer.units,)


def _pooled(place: Place, layer: PoolingLayer, sources: Mapping[str, Shape]) -> Shape:
    first_name, first = next(iter(sources.items()))
    if layer.function.kind == "lrn":
        if len(first) == 1:
            raise FitError(
                f'{place.of("source")} needs channels; "{first_name}" is flat. Take a convolution, or give'
                ' the input a "shape".'
            )
        return first
    if layer.kernel is not None:
        windows = windows_of(place, layer, first_name, first)
        return windows.channels, *windows.positions
    for name, shape in sources.items():
        if prod(shape) != prod(first):
            raise FitError(
                f'{place.of("source")} must have equally many units; "{first_name}" has {prod(first)},'
                f' "{name}" {prod(shape)}.'
            )
    if layer.function.kind == "maxout":
        return first if all(shape == first for shape in sources.values()) else (prod(first),)
    return (len(sources) - 1,)


def _check_skip(spec: NetworkSpec, layer: Trunk, shapes: Mapping[str, Shape]) -> None:
    units = prod(shapes[layer.name])
    for name in layer.skip or ():
        if prod(shapes[name]) != units:
            rule = (
                f'must name layers of {units} units, as "{layer.name}" has; "{name}" has {prod(shapes[name])}'
            )
            raise FitError(f"{Place.find(spec, layer).of('skip')} {rule}.")


def times(sizes: Shape) -> str:
    """Sizes for a person: "3 x 5"."""
    return " x ".join(map(str, sizes))
