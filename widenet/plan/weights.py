"""The weights that the layers of a network own or share, which are split, and which are not trained."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from widenet.errors import FitError
from widenet.plan.layers import plan_of
from widenet.plan.layout import FieldFacts, Key, Layout, Link, Weight, is_sparse_input
from widenet.plan.windows import Place, Shape, Windows, times
from widenet.spec.layers import HiddenLayer, InputLayer, Layer, OutputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import Share
from widenet.spec.sequential import RecurrentLayer


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
        raise FitError(f"must match in size; it needs {sizes}", place=place.of("weights"))
    wide = [
        isinstance(end, OutputLayer) or is_sparse_input(spec, start, fields)
        for start, end in ((source, layer), (owner_source, owner))
    ]
    if wide[0] != wide[1]:
        raise FitError(
            "those of sparse inputs and of outputs are cut into shards and can be shared only among "
            "themselves",
            place=place.of("weights"),
        )
    if wide[0] and (isinstance(layer, OutputLayer) != isinstance(owner, OutputLayer)) != share.transposed:
        raise FitError(
            'an input and an output share weights with "transposed": true, two of a kind with false',
            place=place.of("weights"),
        )


def _weight_shape(
    layer: str, source: str, shapes: Mapping[str, Shape], windows: Mapping[Key, Windows]
) -> Shape:
    """Return the sizes of the weights of a source: units of both, or channels, kernel and filters."""
    kernel = windows.get((layer, source))
    if kernel is not None:
        return kernel.channels, *kernel.kernel, shapes[layer][0]
    return prod(shapes[source]), prod(shapes[layer])


LEAST_BYTES = 2**24
"""Bytes of the smallest weight that is split unless its layer says otherwise: of 2,048 x 2,048 numbers."""


def split_where_it_pays(
    layout: Layout, layer: HiddenLayer | RecurrentLayer, weight: Weight, source: str
) -> Weight:
    """Return a layer's weight for a source, cut into shards of rows if the layer or its bytes say so.

    Only the documents and the shapes decide, so that the bits do not depend on the number of processes. A
    weight that several layers share stays whole.
    """
    if weight.wide or not _is_split(layout, layer, weight, source):
        return weight
    return replace(weight, wide=True, split=True, by_tiles=True)


def check_split(layout: Layout, layer: HiddenLayer) -> None:
    """Raise FitError if a layer must be split but has no weight for it, or shares one that stays whole."""
    weights = [
        layout.weights[layout.links[layer.name, source].weight] for source in layout.network.sources(layer)
    ]
    if layer.split and all(weight.wide and not weight.split for weight in weights):
        place = Place.find(layout.network, layer).of("split")
        raise FitError(
            "must not be true where a layer reads sparse inputs alone, whose weights are cut into "
            "shards anyway",
            place=place,
        )
    for source in layout.network.sources(layer):
        link = layout.links[layer.name, source]
        is_owned = link.weight == f"{layer.name}/{source}" and layout.users(link.weight) == 1
        weight = layout.weights[link.weight]
        if layer.split and not is_owned and (weight.split or not weight.wide):
            place = Place.find(layout.network, layer).of("split")
            raise FitError(
                f'must not be true where layers share a weight, here the one from "{source}"', place=place
            )


def _is_split(layout: Layout, layer: HiddenLayer | RecurrentLayer, weight: Weight, source: str) -> bool:
    if layer.split is not None or layout.users(f"{layer.name}/{source}") > 1:
        return layer.split is True
    state = len(layout.training.optimizer.state)
    num_bytes = weight.numbers * 4
    return num_bytes >= LEAST_BYTES and num_bytes * (1 + state) >= _sent_bytes(layout, layer.name, weight)


def _sent_bytes(layout: Layout, layer: str, weight: Weight) -> int:
    """Return the bytes of a step's numbers that cross shards: sums to the source, and the products."""
    vectors = layout.training.batch_size
    if layer in layout.along:
        along = layout.network.layer(layout.along[layer])
        assert isinstance(along, InputLayer)
        vectors *= along.newest
    return vectors * (8 * weight.row_length + 4 * weight.rows)


def with_frozen(layout: Layout) -> dict[str, Weight]:
    """Return the weights of a layout; those that a frozen layer owns or shares are not trained.

    Raises:
        FitError: No weight is left to train, or one of them is described.
    """
    frozen = [layer for layer in layout.network.layers if getattr(layer, "frozen", False)]
    if not frozen:
        return dict(layout.weights)
    names, place = {layer.name for layer in frozen}, Place.find(layout.network, frozen[0]).of("frozen")
    used = {link.weight for (layer, _), link in layout.links.items() if layer in names}
    weights = {
        name: replace(weight, trained=False, norm_limit=None)
        if name in used or weight.layer in names
        else weight
        for name, weight in layout.weights.items()
    }
    for weight in weights.values():
        if weight.describes is not None and not weights[weight.describes].trained:
            raise FitError(
                'must be false where the weights of features follow their attributes, as those of "'
                f'{weight.layer}" do',
                place=place,
            )
    if not any(weight.trained and weight.numbers for weight in weights.values()):
        raise FitError("must leave weights to train; all are frozen", place=place)
    return weights


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
    windows = {}
    for layer in spec.hidden:
        for source in spec.sources(layer):
            found = plan_of(layer).windows(Place.find(spec, layer), layer, source, shapes[source])
            if found is not None:
                windows[layer.name, source] = found
    return windows


def links_of(spec: NetworkSpec) -> dict[Key, Link]:
    """Return the weight of every layer and source, in the order in which they are computed."""
    links = {
        (layer.name, source): link
        for layer in spec.hidden
        for source, link in plan_of(layer).links(spec, layer).items()
    }
    for output in spec.outputs:
        source = spec.sources(output)[0]
        links[output.name, ""] = link_of(spec, output, source) if output.weights else Link(output.name)
    return links


def _of_hidden(layout: Layout, layer: Trunk) -> Iterator[tuple[str, Weight]]:
    """One for each source whose weights are its own, and those of which it has a number for each unit."""
    plan = plan_of(layer)
    for (name, source), link in layout.links.items():
        if name == layer.name and link.weight == f"{name}/{source}":
            yield link.weight, plan.weight(layout, layer, source)
    yield from plan.numbers(layout, layer)


def _of_output(layout: Layout, output: OutputLayer) -> Iterator[tuple[str, Weight]]:
    """Its own weight, to all sources together, if it shares none; and its biases."""
    sources, rows = layout.network.sources(output), layout.units[output.name]
    if layout.links[output.name, ""].weight == output.name:
        columns = 0 if output.weightless else sum(layout.units[source] for source in sources)
        features = sources[0] if is_sparse_input(layout.network, sources[0], layout.fields) else None
        yield (
            output.name,
            Weight(
                output.name,
                rows,
                columns,
                wide=True,
                input=features,
                by_columns=features is not None,
                norm_limit=output.weight_norm,
            ),
        )
    if output.bias:
        yield (
            f"{output.name} bias",
            Weight(output.name, rows, None, wide=True, by_tiles=output.sample is None),
        )
