"""Decides which layers over pictures each process computes for its own examples alone."""

from widenet.plan.layout import Layout
from widenet.plan.windows import Place
from widenet.spec.layers import Trunk
from widenet.spec.rules import feeding
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
    network, divided = layout.network, list[str]()
    read = {layer.name for layer in network.inputs if layout.fields[layer.field].kind == "dense"}
    for layer in network.hidden:
        if read.issuperset(feeding(network.layers, layer)) and _is_divisible(layout, layer):
            read.add(layer.name)
            divided.append(layer.name)
        elif isinstance(layer, ConvolutionLayer):
            rule = (
                "must not be true here: from the input to this layer there must be only convolutions without"
                " dropout, normalization, sparseness, delta_norm and shared weights, and pooling layers"
            )
            Place.find(network, layer).refuse("split", layer.split, rule)
    units = sum(layout.units[name] for name in divided)
    weights = [
        weight.numbers for weight in layout.weights.values() if weight.layer in divided and weight.trained
    ]
    pays = 4 * layout.training.batch_size * units >= max(LEAST_BYTES, 8 * sum(weights))
    asked = any(getattr(network.layer(name), "split", None) for name in divided)
    return tuple(divided) if weights and (asked or pays) else ()


def _is_divisible(layout: Layout, layer: Trunk) -> bool:
    """Return whether a layer computes each example by itself, with weights that no other layer uses."""
    if not isinstance(layer, ConvolutionLayer):
        return isinstance(layer, PoolingLayer)
    couples = layer.dropout, layer.sparseness, layer.delta_norm, layer.batch_normalization, layer.weights
    names = [f"{layer.name}/{source}" for source in layout.network.sources(layer)]
    is_alone = all(layout.users(name) == 1 for name in names)
    return layer.split is not False and not any(couples) and is_alone


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
