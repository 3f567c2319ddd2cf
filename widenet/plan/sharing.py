"""Weights that several layers use."""

from collections.abc import Mapping
from math import prod

from widenet.errors import FitError
from widenet.plan.layout import FieldFacts, Key, Link, is_sparse_input
from widenet.plan.place import Place
from widenet.plan.windows import Shape, Windows, times
from widenet.spec.layers import Layer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import Share


def link_of(spec: NetworkSpec, layer: Layer, source: str) -> Link:
    """Return the weight that a layer uses for a source: its own, or the one it shares."""
    own = layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"
    shares = getattr(layer, "weights", None) or ()
    share = next((share for share in shares if (share.source or spec.sources(layer)[0]) == source), None)
    if share is None:
        return Link(own)
    owner = spec.layer(share.layer)
    if isinstance(owner, OutputLayer):
        return Link(owner.name, share.transposed)
    return Link(f"{owner.name}/{share.layer_source or spec.sources(owner)[0]}", share.transposed)


def check_share(
    layer: Layer,
    share: Share,
    spec: NetworkSpec,
    fields: Mapping[str, FieldFacts],
    shapes: Mapping[str, Shape],
    windows: Mapping[Key, Windows],
) -> None:
    """Raise FitError where a layer cannot share the weights that it names."""
    place, owner = Place.find(spec, layer), spec.layer(share.layer)
    source = share.source or spec.sources(layer)[0]
    owner_source = share.layer_source or spec.sources(owner)[0]
    wanted = _weight_shape(layer.name, source, shapes, windows)
    offered = _weight_shape(owner.name, owner_source, shapes, windows)
    offered = offered[::-1] if share.transposed else offered
    if wanted != offered:
        turned = " transposed" if share.transposed else ""
        sizes = f"{times(wanted)} weights; those of {owner.name!r}{turned} are {times(offered)}"
        raise FitError(
            f"{place.of('weights')} must match in size. It needs {sizes}. Change {layer.sized_by}."
        )
    wide = [
        isinstance(end, OutputLayer) or is_sparse_input(spec, start, fields)
        for start, end in ((source, layer), (owner_source, owner))
    ]
    if wide[0] != wide[1]:
        raise FitError(
            f"{place.of('weights')}: those of sparse inputs and of outputs are cut into shards and can be"
            " shared only among themselves."
        )
    if wide[0] and (isinstance(layer, OutputLayer) != isinstance(owner, OutputLayer)) != share.transposed:
        raise FitError(
            f'{place.of("weights")}: an input and an output share weights with "transposed": true, two of a'
            " kind with false."
        )


def _weight_shape(
    layer: str, source: str, shapes: Mapping[str, Shape], windows: Mapping[Key, Windows]
) -> Shape:
    """Return the sizes of the weights of a source: units of both, or channels, kernel and filters."""
    kernel = windows.get((layer, source))
    if kernel is not None:
        return kernel.channels, *kernel.kernel, shapes[layer][0]
    return prod(shapes[source]), prod(shapes[layer])
