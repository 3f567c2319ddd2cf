"""The weights of a network: who owns and shares them, and which are split, described, or frozen.

Also the layers that are divided by examples instead.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from widenet.errors import FitError, nearest
from widenet.plan.layout import Key, Layout, Link, Shape, Weight, place_of, times
from widenet.spec.layers import (
    AttentionLayer,
    ConvolutionLayer,
    HiddenLayer,
    Layer,
    OutputLayer,
    PoolingLayer,
    RecurrentLayer,
    Trunk,
)
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import Share
from widenet.spec.rules import feeding

TRAINED, FOLLOWING = ("scale", "shift"), ("mean", "variance")
"""Tensors of a batch normalization: weights and running statistics."""
LEAST_SPLIT_BYTES = 2**24
"""Bytes of the smallest weight that is split unless its layer says otherwise: of 2,048 x 2,048 numbers."""
LEAST_DIVIDED_BYTES = 2**26
"""Bytes of a batch's numbers in the smallest layers that are divided by examples, together, unless one of
them says otherwise.
"""
SUMMED_NUMBERS = 256
"""Neighbours among the numbers of these layers' weights that share a scale in the exact sum of gradients."""

_SHRINKING = ("adamw",)
"""Optimizers that shrink weights, which would shrink the attributes' share of a row as if it were its own."""


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
        isinstance(end, OutputLayer) or source in layout.features for end, source in ends
    )
    are_both_ends = isinstance(layer, OutputLayer) != isinstance(owner, OutputLayer)
    turned = " transposed" if share.transposed else ""
    sizes = f"{times(wanted)} weights; those of {owner.name!r}{turned} are {times(offered)}"
    among = (
        "those of sparse inputs and of outputs are cut into shards and can be shared only among themselves"
    )
    ways = 'an input and an output share weights with "transposed": true, two of a kind with false'
    FitError.refuse(
        place_of(spec, layer),
        ("weights", wanted != offered, f"must match in size; it needs {sizes}"),
        ("weights", is_wide != is_owner_wide, among),
        ("weights", is_wide and are_both_ends != share.transposed, ways),
    )


def _sizes(layout: Layout, layer: str, source: str) -> Shape:
    """Return the sizes of the weights of a source: units of both, or channels, kernel and filters."""
    windows = layout.windows.get((layer, source))
    if windows is None:
        return layout.units[source], layout.units[layer]
    return windows.channels, *windows.kernel, layout.shapes[layer][0]


def weights_of(layout: Layout) -> dict[str, Weight]:
    """Return every weight by its name, given a layout in which all else is known.

    Raises:
        FitError: A layer cannot have the weights that it asks for.
    """
    weights: dict[str, Weight] = {}
    for layer in (*layout.network.hidden, *layout.network.outputs):
        for (name, source), link in layout.links.items():
            if name == layer.name and link.weight == _own_name(layer, source):
                is_stepped = any(output.sample is None for output in layout.outputs_of(link.weight))
                weights[link.weight] = _weight(layout, layer, source, is_stepped)
        weights |= {f"{layer.name}{name}": weight for name, weight in _numbers(layout, layer)}
    for each in layout.network.layers:
        if getattr(each, "described_by", None):
            weights |= _described(layout, each, weights)
    return _with_frozen(layout, weights)


def vectors_name(weight: str) -> str:
    """Return the name of the vectors of attributes that belong to a weight."""
    return f"{weight} description"


def _described(layout: Layout, layer: Layer, weights: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the weight whose rows a layer's attributes describe, and their vectors, by name.

    Raises:
        FitError: The layer cannot be described, or not by these attributes.
    """
    network, training = layout.network, layout.training
    at, names = place_of(network, layer), tuple[str, ...](getattr(layer, "described_by", ()))
    sources = [name for name in network.sources(layer) if name in layout.features]
    is_output, single = isinstance(layer, OutputLayer), "needs one source that is a sparse input"
    several = not is_output and len(sources) != 1
    FitError.refuse(at, ("described_by", several, single, len(sources)))
    weight_name = layout.links[layer.name, "" if is_output else sources[0]].weight
    weight = replace(weights[weight_name], described_by=names)
    field = layout.rows_field(weight)
    known, unknown = layout.fields[field].described, f'items of the field "{field}" have no description'
    direct = "needs a hidden layer between the output and a sparse input"
    penalties, where = {"l1": training.l1, "l2": training.l2}, training.where
    shrinks, kind = f"needs an optimizer in {where} that shrinks no weights", training.optimizer.kind
    FitError.refuse(
        at,
        ("described_by", weight.by_columns, direct),
        *(
            ("described_by", each not in known, f'{unknown} "{each}".{nearest(each, known)}')
            for each in names
        ),
        *(("described_by", value, f"needs {key} 0 in {where}", value) for key, value in penalties.items()),
        ("described_by", kind in _SHRINKING, shrinks, kind),
    )
    rows = sum(known[each] for each in names)
    vectors = Weight(layer.name, rows, weight.columns, wide=False, describes=weight_name)
    return {weight_name: weight, vectors_name(weight_name): vectors}


def _with_frozen(layout: Layout, weights: dict[str, Weight]) -> dict[str, Weight]:
    """Return weights of which those that a frozen layer owns or shares are not trained.

    Raises:
        FitError: No weight is left to train, or one of them is described.
    """
    frozen = [layer for layer in layout.network.layers if getattr(layer, "frozen", False)]
    if not frozen:
        return weights
    names = {layer.name for layer in frozen}
    kept = {link.weight for (layer, _), link in layout.links.items() if layer in names}
    kept |= {name for name, weight in weights.items() if weight.layer in names}
    is_trained = any(
        weight.trained and weight.numbers for name, weight in weights.items() if name not in kept
    )
    follow = "must be false where the weights of features follow their attributes, as those of"
    FitError.refuse(
        place_of(layout.network, frozen[0]),
        *(
            ("frozen", weight.describes in kept, f'{follow} "{weight.layer}" do')
            for weight in weights.values()
        ),
        ("frozen", not is_trained, "must leave weights to train; all are frozen"),
    )
    return {
        name: replace(weight, trained=False, norm_limit=None) if name in kept else weight
        for name, weight in weights.items()
    }


def _weight(layout: Layout, layer: Trunk | OutputLayer, source: str, is_stepped: bool) -> Weight:
    """Return a layer's own weight for a source, or an output's to all: a row for each feature, filter or sum.

    It is cut into shards of rows if the layer or its bytes say so. Only the documents and the shapes decide,
    so that the bits do not depend on the number of processes. A weight that several layers share stays whole.

    Args:
        layout: The layout, without weights.
        layer: The layer that owns it.
        source: The source; ignored for an output.
        is_stepped: Whether an output without a sample uses it, so that every step uses all rows.
    """
    units, of = layout.units[layer.name], partial(Weight, layer.name)
    limited = partial(of, norm_limit=getattr(layer, "weight_norm", None))
    if isinstance(layer, OutputLayer):
        sources = layout.network.sources(layer)
        columns = 0 if layer.weightless else sum(layout.units[name] for name in sources)
        if sources[0] in layout.features:
            return of(units, columns, wide=True, input=sources[0], by_columns=True)
        return limited(units, columns, wide=True, by_tiles=is_stepped)
    if (layer.name, source) in layout.windows:
        windows, (filters, *_) = layout.windows[layer.name, source], layout.shapes[layer.name]
        return of(filters, windows.inputs, wide=False, places=prod(windows.kernel))
    inputs, sums = layout.units[source], getattr(layer, "sums", units)
    if source in layout.features:
        return limited(inputs, sums, wide=True, input=source, by_tiles=is_stepped)
    split: bool | None = getattr(layer, "split", False)
    if split is None and layout.users(f"{layer.name}/{source}") == 1:
        num_bytes, vectors = 4 * sums * inputs, layout.training.batch_size * layout.newest(layer.name)
        sent_bytes = vectors * (8 * inputs + 4 * sums)
        held_bytes = num_bytes * (1 + len(layout.training.optimizer.state))
        split = num_bytes >= LEAST_SPLIT_BYTES and held_bytes >= sent_bytes
    return limited(sums, inputs, wide=bool(split), split=bool(split), by_tiles=bool(split))


def _numbers(layout: Layout, layer: Trunk | OutputLayer) -> Iterator[tuple[str, Weight]]:
    """Yield the layer's weights of no source, such as biases, with the ends of their names."""
    of = partial(Weight, layer.name, columns=None, wide=False)
    units, channels = layout.units[layer.name], layout.shapes[layer.name][0]
    if isinstance(layer, AttentionLayer):
        rule = f"must divide the units of its source, {units}"
        FitError.refuse(place_of(layout.network, layer), ("heads", units % layer.heads, rule, layer.heads))
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
    used = [layout.links[layer.name, source].weight for source in layout.network.sources(layer)]
    shared = [layout.weights[name] for name in used if layout.users(name) > 1]
    is_wrong = any(weight.split or not weight.wide for weight in shared)
    is_wrong = is_wrong or not any(layout.weights[name].split for name in used)
    rule = "must not be true where layers share the weight, or read sparse inputs alone, which are cut anyway"
    FitError.refuse(place_of(layout.network, layer), ("split", layer.split and is_wrong, rule))


def layers_by_examples(layout: Layout) -> tuple[str, ...]:
    """Return the convolutions and pooling layers whose examples are divided among shards, in order.

    These are the first layers over dense inputs, up to a layer that needs all examples at once. Only the
    documents and the shapes decide, so that the bits do not depend on the number of processes.

    Raises:
        FitError: A convolution must be divided but cannot be.
    """
    network, divided = layout.network, list[str]()
    read = {layer.name for layer in network.inputs if layout.fields[layer.field].kind == "dense"}
    for layer in network.hidden:
        keys = ("dropout", "sparseness", "delta_norm", "batch_normalization", "weights")
        takes_all = any(getattr(layer, key, None) for key in keys) or getattr(layer, "split", None) is False
        is_shared = any(layout.users(f"{layer.name}/{source}") > 1 for source in network.sources(layer))
        is_over_pictures = isinstance(layer, ConvolutionLayer | PoolingLayer)
        if (
            is_over_pictures
            and not (takes_all or is_shared)
            and read.issuperset(feeding(network.layers, layer))
        ):
            read.add(layer.name)
            divided.append(layer.name)
        elif isinstance(layer, ConvolutionLayer):
            rule = (
                "must not be true here: from the input to this layer there must be only convolutions without"
                " dropout, normalization, sparseness, delta_norm and shared weights, and pooling layers"
            )
            FitError.refuse(place_of(network, layer), ("split", layer.split, rule))
    units = sum(layout.units[name] for name in divided)
    weights = [
        weight.numbers for weight in layout.weights.values() if weight.layer in divided and weight.trained
    ]
    pays = 4 * layout.training.batch_size * units >= max(LEAST_DIVIDED_BYTES, 8 * sum(weights))
    asked = any(getattr(network.layer(name), "split", None) for name in divided)
    return tuple(divided) if weights and (asked or pays) else ()


def ends_of(layout: Layout) -> list[str]:
    """Return the layers divided by examples that other layers read, whose units are gathered."""
    layers = layout.network.layers
    others = [layer for layer in layers if layer.name not in layout.by_examples]
    read = {source for layer in others for source in feeding(layers, layer)}
    return [name for name in layout.by_examples if name in read]


def weights_by_examples(layout: Layout) -> list[str]:
    """Return the trained weights of the layers divided by examples, whose gradients are added over shards."""
    return [
        name
        for name, weight in layout.weights.items()
        if weight.layer in layout.by_examples and weight.trained
    ]


def fields_by_examples(layout: Layout) -> list[str]:
    """Return the fields that only layers divided by examples read, each process some examples."""
    layers, inputs = layout.network.layers, {layer.name: layer.field for layer in layout.network.inputs}
    own, others = set[str](), {output.field for output in layout.network.outputs}
    for layer in layers:
        read = own if layer.name in layout.by_examples else others
        read |= {inputs[source] for source in feeding(layers, layer) if source in inputs}
    return sorted(own - others)
