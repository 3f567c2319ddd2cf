"""The weights that the layers of a network own or share, which are split, and which are not trained."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from widenet.plan.layout import FieldFacts, Key, Layout, Link, Weight, is_sparse_input
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
    for layer in spec.hidden:
        sources = spec.sources(layer)
        if isinstance(layer, RecurrentLayer):
            sources = (*sources, layer.name)
        if not isinstance(layer, PoolingLayer | AttentionLayer):
            links |= {(layer.name, source): _link(spec, layer, source) for source in sources}
    for output in spec.outputs:
        links[output.name, ""] = _link(spec, output, spec.sources(output)[0])
    return links


def _link(spec: NetworkSpec, layer: Layer, source: str) -> Link:
    """Return the weight that a layer uses for a source: its own, or the one it shares."""
    shares: tuple[Share, ...] = getattr(layer, "weights", None) or ()
    for share in shares:
        if (share.source or spec.sources(layer)[0]) == source:
            owner = spec.layer(share.layer)
            return Link(_own_name(owner, share.layer_source or spec.sources(owner)[0]), share.transposed)
    return Link(_own_name(layer, source))


def _own_name(layer: Layer, source: str) -> str:
    return layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"


def check_share(
    layer: Layer,
    share: Share,
    spec: NetworkSpec,
    fields: Mapping[str, FieldFacts],
    shapes: Mapping[str, Shape],
    windows: Mapping[Key, Windows],
) -> None:
    """Raise FitError where a layer cannot share the weights that it names."""
    owner = spec.layer(share.layer)
    source = share.source or spec.sources(layer)[0]
    owner_source = share.layer_source or spec.sources(owner)[0]
    wanted = _weight_shape(layer.name, source, shapes, windows)
    offered = _weight_shape(owner.name, owner_source, shapes, windows)[:: -1 if share.transposed else 1]
    turned = " transposed" if share.transposed else ""
    is_wide, is_owner_wide = (
        isinstance(end, OutputLayer) or is_sparse_input(spec, start, fields)
        for start, end in ((source, layer), (owner_source, owner))
    )
    are_both_ends = isinstance(layer, OutputLayer) != isinstance(owner, OutputLayer)
    place = Place.find(spec, layer)
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


def _weight_shape(
    layer: str, source: str, shapes: Mapping[str, Shape], windows: Mapping[Key, Windows]
) -> Shape:
    """Return the sizes of the weights of a source: units of both, or channels, kernel and filters."""
    kernel = windows.get((layer, source))
    if kernel is not None:
        return kernel.channels, *kernel.kernel, shapes[layer][0]
    return prod(shapes[source]), prod(shapes[layer])


def weights_of(layout: Layout) -> dict[str, Weight]:
    """Return every weight by its name, given a layout in which all else is known."""
    weights: dict[str, Weight] = {}
    for layer in layout.network.hidden:
        for (name, source), link in layout.links.items():
            if name == layer.name and link.weight == f"{name}/{source}":
                weights[link.weight] = _hidden_weight(layout, layer, source)
        weights |= {f"{layer.name}{name}": weight for name, weight in _numbers(layout, layer)}
    for output in layout.network.outputs:
        weights |= _output_weights(layout, output)
    stepped = {
        layout.links[output.name, ""].weight for output in layout.network.outputs if output.sample is None
    }
    return {
        name: replace(weight, by_tiles=not weight.by_columns and (weight.by_tiles or name in stepped))
        for name, weight in weights.items()
    }


def _hidden_weight(layout: Layout, layer: Trunk, source: str) -> Weight:
    """Return a layer's own weight for a source: a row for each feature, filter or sum.

    It is cut into shards of rows if the layer or its bytes say so. Only the documents and the shapes decide,
    so that the bits do not depend on the number of processes. A weight that several layers share stays whole.
    """
    if (layer.name, source) in layout.windows:
        windows = layout.windows[layer.name, source]
        filters = layout.shapes[layer.name][0]
        return Weight(layer.name, filters, windows.inputs, wide=False, places=prod(windows.kernel))
    units, sums = layout.units[source], getattr(layer, "sums", layout.units[layer.name])
    limit: float | None = getattr(layer, "weight_norm", None)
    if is_sparse_input(layout.network, source, layout.fields):
        return Weight(layer.name, units, sums, wide=True, input=source, norm_limit=limit)
    weight = Weight(layer.name, sums, units, wide=False, norm_limit=limit)
    split: bool | None = getattr(layer, "split", False)
    if split is None and layout.users(f"{layer.name}/{source}") == 1:
        vectors = layout.training.batch_size * layout.newest(layer.name)
        sent_bytes = vectors * (8 * units + 4 * sums)
        held_bytes = 4 * weight.numbers * (1 + len(layout.training.optimizer.state))
        split = 4 * weight.numbers >= LEAST_BYTES and held_bytes >= sent_bytes
    return replace(weight, wide=True, split=True, by_tiles=True) if split else weight


def _numbers(layout: Layout, layer: Trunk) -> Iterator[tuple[str, Weight]]:
    """Yield the layer's weights of no source, such as biases, with the ends of their names."""

    def of(rows: int, columns: int | None = None, trained: bool = True) -> Weight:
        return Weight(layer.name, rows, columns, wide=False, trained=trained)

    units, channels = layout.units[layer.name], layout.shapes[layer.name][0]
    if isinstance(layer, AttentionLayer):
        rule = f"must divide the units of its source, {units}"
        place = Place.find(layout.network, layer)
        place.refuse("heads", units % layer.heads, rule, value=layer.heads)
        for name, inputs, outputs in matrices(layer, units):
            yield f"/{name}", of(outputs, inputs)
            yield f"/{name} bias", of(outputs)
        if layer.positions != "none":
            yield "/positions", of(layout.newest(layer.name), units)
        for name in ("attention", "feed forward", *["output"] * layer.normalize_output):
            yield f"/{name} scale", of(units)
            yield f"/{name} shift", of(units)
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


def _output_weights(layout: Layout, output: OutputLayer) -> dict[str, Weight]:
    """Return an output's own weight, to all sources together, if it shares none; and its biases."""
    sources, rows, found = layout.network.sources(output), layout.units[output.name], {}
    if layout.links[output.name, ""].weight == output.name:
        reads_features = is_sparse_input(layout.network, sources[0], layout.fields)
        found[output.name] = Weight(
            output.name,
            rows,
            0 if output.weightless else sum(layout.units[source] for source in sources),
            wide=True,
            input=sources[0] if reads_features else None,
            by_columns=reads_features,
            norm_limit=output.weight_norm,
        )
    if output.bias:
        found[f"{output.name} bias"] = Weight(
            output.name, rows, None, wide=True, by_tiles=output.sample is None
        )
    return found


def check_split(layout: Layout, layer: HiddenLayer) -> None:
    """Raise FitError if a layer must be split but has no weight for it, or shares one that stays whole."""
    if not layer.split:
        return
    place = Place.find(layout.network, layer)
    links = {source: layout.links[layer.name, source].weight for source in layout.network.sources(layer)}
    weights = {source: layout.weights[name] for source, name in links.items()}
    place.refuse(
        "split",
        all(weight.wide and not weight.split for weight in weights.values()),
        "must not be true where a layer reads sparse inputs alone, whose weights are in shards anyway",
    )
    for source, weight in weights.items():
        is_owned = links[source] == f"{layer.name}/{source}" and layout.users(links[source]) == 1
        place.refuse(
            "split",
            not is_owned and (weight.split or not weight.wide),
            f'must not be true where layers share a weight, here the one from "{source}"',
        )


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
