"""Layers over channels and places: how they may be written, and every broken rule in one sentence."""

import pytest

from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import BatchNormalization

PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [1, 7, 6]}
OUT = {"name": "out", "kind": "output", "field": "label"}


def network(*layers):
    return {"layers": [PICTURE, *layers, OUT]}


def convolution(**settings):
    return {"name": "c", "kind": "convolution", "filters": 3, "kernel": 3, **settings}


def pooling(function="max", **settings):
    return {"name": "p", "kind": "pooling", "function": function, **settings}


@pytest.mark.parametrize(
    "layer",
    [
        convolution(),
        convolution(kernel=[3, 2], stride=[1, 2], padding=[0, 1], batch_normalization=True, skip="in"),
        convolution(padding="dsstne", batch_normalization={"momentum": 1}, skip=["in"]),
        pooling(kernel=2),
        pooling("average", kernel=[2, 2], stride=1, padding="valid"),
        pooling({"kind": "lrn", "n": 3}),
        {"name": "h", "units": 3, "batch_normalization": True},
    ],
    ids=str,
)
def test_a_document_reads_as_it_is_written_out(layer):
    document = NetworkSpec.of(network(layer))
    assert NetworkSpec.parse(document.to_json()) == document


def test_a_switch_is_the_normalization_of_the_defaults_or_none():
    found = [
        NetworkSpec.of(network(convolution(batch_normalization=switch))).hidden[0].batch_normalization
        for switch in (True, False, {})
    ]
    assert found == [BatchNormalization(), None, BatchNormalization()]


MISTAKES = [
    (convolution(kernel=0), "layers[1].kernel must be at least 1; got 0."),
    (convolution(kernel=[3, 0]), "layers[1].kernel[1] must be at least 1; got 0."),
    (convolution(kernel=[1, 1, 1, 1]), "layers[1].kernel must be at most 3 long; got [1, 1, 1, 1]."),
    (convolution(kernel="three"), 'layers[1].kernel must be a whole number, without quotes; got "three".'),
    (
        convolution(padding="sane"),
        'layers[1].padding must be one of same, valid, dsstne; got "sane". Did you mean "same"?',
    ),
    (
        convolution(kernel=[3, 3], stride=[2]),
        'layers[1].stride must have one number an axis, 2 as "kernel"; got 1.',
    ),
    (
        convolution(padding=3),
        'layers[1].padding must be less than the kernel, 3; got 3. Lower it, or use "same".',
    ),
    (
        convolution(kernel=[3, 1], padding=1),
        'layers[1].padding must be less than the kernel, 1; got 1. Lower it, or use "same".',
    ),
    (
        convolution(batch_normalization={"epsilon": 0}),
        "layers[1].batch_normalization.epsilon must be more than 0.0; got 0.",
    ),
    (convolution(skip="inn"), 'layers[1].skip must name a layer; got "inn". Did you mean "in"?'),
    (convolution(skip=["in", "in"]), "layers[1].skip must name each layer once; got in, in."),
    (convolution(skip="c"), "layers must not feed themselves; got c -> c. Remove one source."),
    (
        convolution(skip="out"),
        'layers[1].skip must not be an output layer; got "out". Name the layer\'s "source".',
    ),
    (convolution(weights={"layer": "h"}), 'layers[1].weights.layer must name another convolution; got "h".'),
    (pooling("most"), 'layers[1].function must be a known name; got "most". Did you mean "maxout"?'),
    (pooling(), 'layers[1].kernel is missing: the function "max" needs it. Add "kernel".'),
    (
        pooling("lrn", kernel=2),
        'layers[1].kernel belongs to the functions "max" and "average"; got it for "lrn". Remove it.',
    ),
    (pooling("cosine"), 'layers[1].source must name at least two layers for the function "cosine"; got 1.'),
    (
        pooling(kernel=2, source=["in", "h"]),
        'layers[1].source must name one layer for the function "max"; got 2. Pool each by itself.',
    ),
]


@pytest.mark.parametrize(("layer", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_gives_one_sentence(layer, message):
    more = [
        {"name": "h", "units": 3, "source": "in"},
        {"name": "g", "units": 3, "source": ["h", layer["name"]]},
    ]
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.of(network(layer, *more), "network.json")
    assert str(caught.value) == f"network.json: {message}"


def test_a_skip_orders_layers_and_counts_as_a_use():
    layers = [
        {"name": "h", "units": 3, "source": "in", "skip": "g"},
        {"name": "g", "units": 3, "source": "in"},
    ]
    spec = NetworkSpec.of({"layers": [PICTURE, *layers, {**OUT, "source": "h"}]})
    assert [layer.name for layer in spec.hidden] == ["g", "h"]


def test_convolutions_share_filters_only_as_they_are():
    layers = [convolution(), convolution(name="d", weights={"layer": "c", "transposed": True})]
    with pytest.raises(
        DocumentError, match=r"transposed must be false for a convolution; got true. Remove it\."
    ):
        NetworkSpec.of(network(*layers))
