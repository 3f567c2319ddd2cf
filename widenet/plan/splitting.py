"""Decides which fully connected and recurrent layers are split: their weights cut into shards of rows."""

from dataclasses import replace

from widenet.errors import FitError
from widenet.plan.layout import Layout, Weight
from widenet.plan.place import Place
from widenet.spec.layers import HiddenLayer, InputLayer
from widenet.spec.recurrent import RecurrentLayer

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
            f"{place} must not be true where a layer reads sparse inputs alone, whose weights are cut into"
            " shards anyway. Remove it."
        )
    for source in layout.network.sources(layer):
        link = layout.links[layer.name, source]
        is_owned = link.weight == f"{layer.name}/{source}" and layout.users(link.weight) == 1
        weight = layout.weights[link.weight]
        if layer.split and not is_owned and (weight.split or not weight.wide):
            place = Place.find(layout.network, layer).of("split")
            raise FitError(
                f'{place} must not be true where layers share a weight, here the one from "{source}". Remove'
                ' it, or "weights".'
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
