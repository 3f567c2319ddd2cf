"""The shapes of layers, and the sentences for those that do not fit what feeds them."""

import pytest

from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {"pixels": Width(84, kind="dense"), "items": Width(29), "label": Width(4)}
PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [2, 7, 6]}
ITEMS = {"name": "items", "kind": "input", "field": "items"}
OUT = {"name": "out", "kind": "output", "field": "label"}


def convolution(name, **settings):
    return {"name": name, "kind": "convolution", "filters": 3, "kernel": 3, **settings}


def pooling(function, **settings):
    return {"name": "p", "kind": "pooling", "function": function, **settings}


def network(*layers):
    return NetworkSpec.of({"layers": [*layers, OUT]}, "network.json")


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([convolution("p")], (3, 7, 6)),
        ([convolution("p", stride=2)], (3, 4, 3)),
        ([pooling("max", kernel=2)], (2, 4, 3)),
        ([pooling("lrn")], (2, 7, 6)),
        ([convolution("a"), convolution("b", source="in"), pooling("maxout", source=["a", "b"])], (3, 7, 6)),
        ([convolution("a"), {"name": "b", "units": 126}, pooling("maxout", source=["a", "b"])], (126,)),
        (
            [convolution("a"), convolution("b"), convolution("c"), pooling("cosine", source=["a", "b", "c"])],
            (2,),
        ),
        ([{"name": "p", "units": 5}], (5,)),
    ],
    ids=str,
)
def test_every_kind_of_layer_has_its_shape(layers, shape):
    assert bind(network(PICTURE, *layers), TrainingSpec(), FIELDS).shapes["p"] == shape
