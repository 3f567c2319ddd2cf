"""The weights that the layers of a network own or share."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from widenet.plan.layout import Key, Layout, Link, Weight, is_sparse_input
from widenet.plan.place import Place
from widenet.plan.windows import Shape, Windows, windows_of
from widenet.spec.layers import HiddenLayer, OutputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.recurrent import RecurrentLayer
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

TRAINED, FOLLOWING = ("scale", "shift"), ("mean", "variance")
"""What a batch normalization keeps: weights, and running statistics."""


def weights_of(layout: Layout) -> dict[str, Weight]:
    """Return every weight by its name, given a layout in which all else is known."""
    weights = dict(pair for layer in layout.network.hidden for pair in _of_hidden(layout, layer))
    weights |= dict(pair for output in layout.network.outputs for pair in _of_output(layout, output))
    stepped = {
        layout.links[output.name, ""].weight for output in layout.network.outputs if output.sample is None
    }
    return {
        name: replace(weight, by_tiles=not weight.by_columns and (weight.by_tiles or name in stepped))
        for name, weight in weights.items()
    }


def windows_between(spec: NetworkSpec, shapes: Mapping[str, Shape]) -> dict[Key, Windows]:
    """Return how kernels move, by (layer, source)."""
    return {
        (layer.name, source): windows_of(Place.find(spec, layer), layer, source, shapes[source])
        for layer in spec.hidden
        if isinstance(layer, ConvolutionLayer | PoolingLayer) and layer.kernel is not None
        for source in spec.sources(layer)
    }


def links_of(spec: NetworkSpec) -> dict[Key, Link]:
    """Return the weight of every layer and source, in the order in which they are computed."""
    links = {}
    for layer in spec.hidden:
        if isinstance(layer, RecurrentLayer):
            for source in (*spec.sources(layer), layer.name):
                links[layer.name, source] = Link(f"{layer.name}/{source}")
        elif not isinstance(layer, PoolingLayer):
            for source in spec.sources(layer):
                links[layer.name, source] = _link(spec, layer, source)
    for output in spec.outputs:
        own = _link(spec, output, spec.sources(output)[0]) if output.weights else Link(output.name)
        links[output.name, ""] = own
    return links


def _of_hidden(layout: Layout, layer: Trunk) -> Iterator[tuple[str, Weight]]:
    """One for each source whose weights are its own, and those of which it has a number for each unit."""
    own = [layer.name] if isinstance(layer, RecurrentLayer) else []
    for source in (*layout.network.sources(layer), *own):
        name, link = f"{layer.name}/{source}", layout.links.get((layer.name, source))
        if link is not None and link.weight == name:
            yield name, _between(layout, layer, source)
    if isinstance(layer, RecurrentLayer):
        if layer.bias:
            yield f"{layer.name} bias", Weight(layer.name, 4 * layer.units, None, wide=False)
    elif not isinstance(layer, PoolingLayer):
        yield from _per_channel(layer, layout.shapes[layer.name][0])


def _between(layout: Layout, layer: Trunk, source: str) -> Weight:
    """The weight from a source to the sums of a layer: a row a feature of a sparse input, else a row a sum or
    a filter.
    """
    if isinstance(layer, ConvolutionLayer):
        windows = layout.windows[layer.name, source]
        return Weight(layer.name, layer.filters, windows.inputs, wide=False, places=prod(windows.kernel))
    units = layout.units[source]
    sums = layer.sums if isinstance(layer, RecurrentLayer) else layout.units[layer.name]
    if is_sparse_input(layout.network, source, layout.fields):
        return Weight(layer.name, units, sums, wide=True, input=source)
    return Weight(layer.name, sums, units, wide=False)


def _of_output(layout: Layout, output: OutputLayer) -> Iterator[tuple[str, Weight]]:
    """Its own weight, to all sources together, if it shares none; and its biases."""
    sources, rows = layout.network.sources(output), layout.units[output.name]
    if layout.links[output.name, ""].weight == output.name:
        columns = 0 if output.weightless else sum(layout.units[source] for source in sources)
        features = sources[0] if is_sparse_input(layout.network, sources[0], layout.fields) else None
        yield (
            output.name,
            Weight(output.name, rows, columns, wide=True, input=features, by_columns=features is not None),
        )
    if output.bias:
        yield (
            f"{output.name} bias",
            Weight(output.name, rows, None, wide=True, by_tiles=output.sample is None),
        )


def _per_channel(layer: HiddenLayer | ConvolutionLayer, channels: int) -> Iterator[tuple[str, Weight]]:
    """The numbers of which a layer has one for each unit, a convolution one for each filter."""
    parts = (
        [f"normalization {part}" for part in (*TRAINED, *FOLLOWING)]
        if layer.batch_normalization is not None
        else []
    )
    for kind in [*["bias"] * layer.bias, *parts]:
        yield (
            f"{layer.name} {kind}",
            Weight(layer.name, channels, None, wide=False, trained=not kind.endswith(FOLLOWING)),
        )


def _link(spec: NetworkSpec, layer: HiddenLayer | ConvolutionLayer | OutputLayer, source: str) -> Link:
    """The weight that a layer uses for a source: its own, or the one it shares."""
    own = layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"
    share = next(
        (share for share in layer.weights or () if (share.source or spec.sources(layer)[0]) == source), None
    )
    if share is None:
        return Link(own)
    owner = spec.layer(share.layer)
    if isinstance(owner, OutputLayer):
        return Link(owner.name, share.transposed)
    return Link(f"{owner.name}/{share.layer_source or spec.sources(owner)[0]}", share.transposed)
