"""The shapes of all layers, from those of the inputs on."""

from collections.abc import Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.layers import plan_of
from widenet.plan.place import Place
from widenet.plan.windows import Shape
from widenet.spec.layers import InputLayer, Trunk
from widenet.spec.network import NetworkSpec


def shapes_of(spec: NetworkSpec, ends: Mapping[str, int]) -> dict[str, Shape]:
    """The shape of every layer, by name; raises FitError where one does not fit what feeds it.

    ends: units of the inputs and outputs, by name.
    """
    found = {name: _end(spec, name, units) for name, units in ends.items()}
    for layer in spec.hidden:
        sources = {name: found[name] for name in spec.sources(layer)}
        found[layer.name] = plan_of(layer).shape(Place.find(spec, layer), layer, sources)
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


def _check_skip(spec: NetworkSpec, layer: Trunk, shapes: Mapping[str, Shape]) -> None:
    units = prod(shapes[layer.name])
    for name in layer.skip or ():
        if prod(shapes[name]) != units:
            rule = (
                f'must name layers of {units} units, as "{layer.name}" has; "{name}" has {prod(shapes[name])}'
            )
            raise FitError(f"{Place.find(spec, layer).of('skip')} {rule}.")
