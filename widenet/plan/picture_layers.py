"""Decides which layers over pictures each process computes for its own examples alone."""

from collections.abc import Collection

from widenet.plan.layout import Layout, is_sparse_input
from widenet.plan.windows import Place
from widenet.spec.layers import InputLayer, Layer, Trunk
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

LEAST_BYTES = 2**26
"""Bytes of a batch's numbers in the smallest such layers, together, unless one of them says otherwise."""

SUMMED_NUMBERS = 256
"""Neighbours among the numbers of these layers' weights that share a scale in the exact sum of gradients."""


def layers_by_examples(layout: Layout) -> tuple[str, ...]:
    """Return the convolutions and pooling layers whose examples are divided among shards, in order.

    These are the first layers over dense inputs, up to a layer that needs all examples at once. Only the
    documents and the shapes decide, so that the bits do not depend on the number of processes.

    Raises:
        FitError: A convolution must be divided but cannot be.
    """
    network, divided = layout.network, _divisible(layout)
    for layer in network.hidden:
        must = isinstance(layer, ConvolutionLayer) and layer.split and layer.name not in divided
        rule = (
            "must not be true here: from the input to this layer there must be only convolutions without"
            " dropout, normalization, sparseness, delta_norm and shared weights, and pooling layers"
        )
        Place.find(network, layer).refuse("split", must, rule)
    units = sum(layout.units[name] for name in divided)
    weights = [
        weight.numbers for weight in layout.weights.values() if weight.layer in divided and weight.trained
    ]
    pays = 4 * layout.training.batch_size * units >= max(LEAST_BYTES, 8 * sum(weights))
    asked = any(getattr(network.layer(name), "split", None) for name in divided)
    return divided if weights and (asked or pays) else ()


def ends_of(layout: Layout, divided: Collection[str]) -> list[str]:
    """Return the layers divided by examples that other layers read, whose units are gathered."""
    others = [layer for layer in layout.network.layers if layer.name not in divided]
    read = {source for layer in others for source in _sources(layout, layer)}
    return [layer.name for layer in layout.network.hidden if layer.name in divided and layer.name in read]


def weights_by_examples(layout: Layout) -> list[str]:
    """Return the trained weights of the layers divided by examples, whose gradients are added over shards."""
    return [
        name
        for name, weight in layout.weights.items()
        if weight.layer in layout.by_examples and weight.trained
    ]


def fields_by_examples(layout: Layout) -> list[str]:
    """Return the fields that only layers divided by examples read, each process some examples."""
    network, inputs = layout.network, {layer.name: layer.field for layer in layout.network.inputs}
    others = [layer for layer in network.layers if layer.name not in layout.by_examples]
    needed = {inputs.get(source) for layer in others for source in _sources(layout, layer)}
    needed |= {output.field for output in network.outputs}
    read = {
        inputs[source]
        for name in layout.by_examples
        for source in _sources(layout, network.layer(name))
        if source in inputs
    }
    return sorted(read - needed)


def _divisible(layout: Layout) -> tuple[str, ...]:
    """Return the layers that compute each example by itself and lead to others, in order."""
    network = layout.network
    divided = {
        layer.name for layer in network.inputs if not is_sparse_input(network, layer.name, layout.fields)
    }
    members = []
    for layer in network.hidden:
        if divided.issuperset(_sources(layout, layer)) and _is_divisible(layout, layer):
            divided.add(layer.name)
            members.append(layer)
    needed = {*ends_of(layout, divided)}
    for layer in reversed(members):
        needed |= {*_sources(layout, layer)} if layer.name in needed else set()
    return tuple(layer.name for layer in members if layer.name in needed)


def _is_divisible(layout: Layout, layer: Trunk) -> bool:
    """Return whether a layer computes each example by itself, with weights that no other layer uses."""
    if not isinstance(layer, ConvolutionLayer):
        return isinstance(layer, PoolingLayer)
    couples = layer.dropout, layer.sparseness, layer.delta_norm, layer.batch_normalization, layer.weights
    names = [f"{layer.name}/{source}" for source in layout.network.sources(layer)]
    is_alone = all(layout.users(name) == 1 for name in names)
    return layer.split is not False and not any(couples) and is_alone


def _sources(layout: Layout, layer: Layer) -> tuple[str, ...]:
    """Return the layers that a layer reads."""
    if isinstance(layer, InputLayer):
        return ()
    return *layout.network.sources(layer), *(getattr(layer, "skip", None) or ())
