"""The weights that the layers of a network own or share, which are split, and which are not trained."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from widenet.plan.layout import Key, Layout, Link, Weight, is_sparse_input
from widenet.plan.windows import Place, Shape, Windows, times, windows_of
from widenet.spec.layers import HiddenLayer, Layer, OutputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import Share
from widenet.spec.sequential import AttentionLayer, RecurrentLayer
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

TRAINED, FOLLOWING = ("scale", "shift"), ("mean", "variance")
"""Tensors of a batch normalization: weights and running statistics."""
LEAST_BYTES = 2**24
"""Bytes of the smallest weight that is split unless its layer says otherwise: of 2,048 x 2,048 numbers."""


def links_of(spec: NetworkSpec) -> dict[Key, Link]:
    """Return the weight of every layer and source, in the order in which they are computed."""
    links: dict[Key, Link] = {}
    for layer in (*spec.hidden, *spec.outputs):
        if isinstance(layer, PoolingLayer | AttentionLayer):
            continue
        sources = spec.sources(layer)
        keys = (*sources, layer.name) if isinstance(layer, RecurrentLayer) else sources
        links |= {_key(layer, source): Link(_own_name(layer, source)) for source in keys}
        for share in layer.shares:
            owner = spec.layer(share.layer)
            name = _own_name(owner, share.layer_source or spec.sources(owner)[0])
            links[_key(layer, share.source or sources[0])] = Link(name, share.transposed)
    return links


def _key(layer: Layer, source: str) -> Key:
    """Return the key of a layer's weight for a source; an output has one for all its sources."""
    return layer.name, "" if isinstance(layer, OutputLayer) else source


def _own_name(layer: Layer, source: str) -> str:
    return "/".join(filter(None, _key(layer, source)))


def check_share(layout: Layout, layer: Layer, share: Share) -> None:
    """Raise FitError where a layer cannot share the weights that it names."""
    spec = layout.network
    owner = spec.layer(share.layer)
    ends = (
        (layer, share.source or spec.sources(layer)[0]),
        (owner, share.layer_source or spec.sources(owner)[0]),
    )
    wanted, offered = (_sizes(layout, end.name, source) for end, source in ends)
    offered = offered[:: -1 if share.transposed else 1]
    is_wide, is_owner_wide = (
        isinstance(end, OutputLayer) or is_sparse_input(spec, source, layout.fields) for end, source in ends
    )
    are_both_ends = isinstance(layer, OutputLayer) != isinstance(owner, OutputLayer)
    place, turned = Place.find(spec, layer), " transposed" if share.transposed else ""
    sizes = f"{times(wanted)} weights; those of {owner.name!r}{turned} are {times(offered)}"
    place.refuse("weights", wanted != offered, f"must match in size; it needs {sizes}")
    place.refuse(
        "weights",
        is_wide != is_owner_wide,
        "those of sparse inputs and of outputs are cut into shards and can be shared only among themselves",
    )
    place.refuse(
        "weights",
        is_wide and are_both_ends != share.transposed,
        'an input and an output share weights with "transposed": true, two of a kind with false',
    )


def _sizes(layout: Layout, layer: str, source: str) -> Shape:
    """Return the sizes of the weights of a source: units of both, or channels, kernel and filters."""
    windows = layout.windows.get((layer, source))
    if windows is None:
        return layout.units[source], layout.units[layer]
    return windows.channels, *windows.kernel, layout.shapes[layer][0]


def weights_of(layout: Layout) -> dict[str, Weight]:
    """Return every weight by its name, given a layout in which all else is known."""
    weights: dict[str, Weight] = {}
    for layer in (*layout.network.hidden, *layout.network.outputs):
        for (name, source), link in layout.links.items():
            if name == layer.name and link.weight == _own_name(layer, source):
                weights[link.weight] = _weight(layout, layer, source)
        weights |= {f"{layer.name}{name}": weight for name, weight in _numbers(layout, layer)}
    stepped = {
        layout.links[output.name, ""].weight for output in layout.network.outputs if output.sample is None
    }
    return {
        name: replace(weight, by_tiles=not weight.by_columns and (weight.by_tiles or name in stepped))
        for name, weight in weights.items()
    }


def _weight(layout: Layout, layer: Trunk | OutputLayer, source: str) -> Weight:
    """Return a layer's own weight for a source, or an output's to all: a row for each feature, filter or sum.

    It is cut into shards of rows if the layer or its bytes say so. Only the documents and the shapes decide,
    so that the bits do not depend on the number of processes. A weight that several layers share stays whole.
    """
    units, limit = layout.units[layer.name], getattr(layer, "weight_norm", None)
    if isinstance(layer, OutputLayer):
        sources = layout.network.sources(layer)
        columns = 0 if layer.weightless else sum(layout.units[name] for name in sources)
        if is_sparse_input(layout.network, sources[0], layout.fields):
            return Weight(layer.name, units, columns, wide=True, input=sources[0], by_columns=True)
        return Weight(layer.name, units, columns, wide=True, norm_limit=limit)
    if (layer.name, source) in layout.windows:
        windows, filters = layout.windows[layer.name, source], layout.shapes[layer.name][0]
        return Weight(layer.name, filters, windows.inputs, wide=False, places=prod(windows.kernel))
    inputs, sums = layout.units[source], getattr(layer, "sums", units)
    if is_sparse_input(layout.network, source, layout.fields):
        return Weight(layer.name, inputs, sums, wide=True, input=source, norm_limit=limit)
    split: bool | None = getattr(layer, "split", False)
    weight = Weight(layer.name, sums, inputs, wide=False, norm_limit=limit)
    if split is None and layout.users(f"{layer.name}/{source}") == 1:
        vectors = layout.training.batch_size * layout.newest(layer.name)
        sent_bytes = vectors * (8 * inputs + 4 * sums)
        held_bytes = 4 * weight.numbers * (1 + len(layout.training.optimizer.state))
        split = 4 * weight.numbers >= LEAST_BYTES and held_bytes >= sent_bytes
    return replace(weight, wide=True, split=True, by_tiles=True) if split else weight


def _numbers(layout: Layout, layer: Trunk | OutputLayer) -> Iterator[tuple[str, Weight]]:
    """Yield the layer's weights of no source, such as biases, with the ends of their names."""
    of = partial(Weight, layer.name, columns=None, wide=False)
    units, channels = layout.units[layer.name], layout.shapes[layer.name][0]
    if isinstance(layer, AttentionLayer):
        rule = f"must divide the units of its source, {units}"
        place = Place.find(layout.network, layer)
        place.refuse("heads", units % layer.heads, rule, value=layer.heads)
        for name, inputs, outputs in matrices(layer, units):
            yield f"/{name}", of(outputs, columns=inputs)
            yield f"/{name} bias", of(outputs)
        if layer.positions != "none":
            yield "/positions", of(layout.newest(layer.name), columns=units)
        for name in ("attention", "feed forward", *["output"] * layer.normalize_output):
            yield f"/{name} scale", of(units)
            yield f"/{name} shift", of(units)
    elif isinstance(layer, OutputLayer) and layer.bias:
        yield " bias", of(units, wide=True, by_tiles=layer.sample is None)
    elif getattr(layer, "bias", False):
        yield " bias", of(getattr(layer, "biases", channels))
    if getattr(layer, "batch_normalization", None) is not None:
        for part in (*TRAINED, *FOLLOWING):
            yield f" normalization {part}", of(channels, trained=part in TRAINED)


def matrices(layer: AttentionLayer, units: int) -> list[tuple[str, int, int]]:
    """Return the name, inputs and outputs of each matrix, in the order of the layer.

    They give queries, keys and values side by side, the joined heads, and the two fully connected layers.
    """
    inner = units if layer.feed_forward is None else layer.feed_forward
    return [
        ("projections", units, 3 * units),
        ("joined", units, units),
        ("inner", units, inner),
        ("outer", inner, units),
    ]


def check_split(layout: Layout, layer: HiddenLayer) -> None:
    """Raise FitError if a layer must be split but has no weight for it, or shares one that stays whole."""
    weights = {
        f"{layer.name}/{source}": layout.links[layer.name, source].weight
        for source in layout.network.sources(layer)
    }
    shared = {name for own, name in weights.items() if own != name or layout.users(name) > 1}
    used = {name: layout.weights[name] for name in weights.values()}
    is_wrong = any(used[name].split or not used[name].wide for name in shared)
    is_wrong = is_wrong or not any(weight.split for weight in used.values())
    rule = "must not be true where layers share the weight, or read sparse inputs alone, which are cut anyway"
    Place.find(layout.network, layer).refuse("split", layer.split and is_wrong, rule)


def with_frozen(layout: Layout) -> dict[str, Weight]:
    """Return the weights of a layout; those that a frozen layer owns or shares are not trained.

    Raises:
        FitError: No weight is left to train, or one of them is described.
    """
    frozen = [layer for layer in layout.network.layers if getattr(layer, "frozen", False)]
    if not frozen:
        return dict(layout.weights)
    names, place = {layer.name for layer in frozen}, Place.find(layout.network, frozen[0])
    used = {link.weight for (layer, _), link in layout.links.items() if layer in names}
    weights = {
        name: replace(weight, trained=False, norm_limit=None)
        if name in used or weight.layer in names
        else weight
        for name, weight in layout.weights.items()
    }
    for weight in weights.values():
        is_kept = weight.describes is not None and not weights[weight.describes].trained
        rule = "must be false where the weights of features follow their attributes, as those of"
        place.refuse("frozen", is_kept, f'{rule} "{weight.layer}" do')
    is_trained = any(weight.trained and weight.numbers for weight in weights.values())
    place.refuse("frozen", not is_trained, "must leave weights to train; all are frozen")
    return weights


def windows_between(spec: NetworkSpec, shapes: Mapping[str, Shape]) -> dict[Key, Windows]:
    """Return how kernels move, by (layer, source)."""
    return {
        (layer.name, source): windows_of(Place.find(spec, layer), layer, source, shapes[source])
        for layer in spec.hidden
        if isinstance(layer, ConvolutionLayer | PoolingLayer) and layer.kernel is not None
        for source in spec.sources(layer)
    }
