"""The shapes of layers, and the sentences for those that do not fit what feeds them."""

import pytest

from widenet.errors import FitError
from widenet.plan.binding import bind, shapes_of
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


DIRECT = 'layer cannot take the sparse input "items" directly. Put a hidden layer between them.'
PIXELS = 'the width of the field "pixels", 84'
SIZES = "It needs 3 x 3 x 3 x 3 weights; those of 'c' are 2 x 3 x 3 x 3."
REFUSED = {
    f'layers[0].shape ("in") must multiply to {PIXELS}; got [2, 7, 5], which is 70.': [
        PICTURE | {"shape": [2, 7, 5]},
        convolution("c"),
    ],
    'layers[0].shape ("items") needs a dense field; "items" is sparse. Remove it.': [
        ITEMS | {"shape": [1, 29]},
        {"name": "h", "units": 3},
    ],
    f'layers[1].source ("c"): a convolution {DIRECT}': [
        ITEMS,
        convolution("c", kernel=[3]),
    ],
    f'layers[3].skip ("g"): a hidden {DIRECT}': [
        PICTURE,
        ITEMS,
        {"name": "h", "units": 29, "source": ["in", "items"]},
        {"name": "g", "units": 29, "skip": "items"},
    ],
    'layers[2].skip ("h") must name layers of 5 units, as "h" has; "in" has 84.': [
        PICTURE,
        convolution("c"),
        {"name": "h", "units": 5, "skip": "in"},
    ],
    'layers[3].source ("d") must each give as many positions as "c", 7 x 6; "b" gives 4 x 3.': [
        PICTURE,
        convolution("c"),
        convolution("b", source="in", stride=2),
        convolution("d", source=["c", "b"]),
    ],
    'layers[2].source ("p") must have equally many units; "c" has 126, "in" 84.': [
        PICTURE,
        convolution("c"),
        pooling("maxout", source=["c", "in"]),
    ],
    'layers[2].source ("p") needs channels; "h" is flat. Take a convolution, or give the input a "shape".': [
        PICTURE,
        {"name": "h", "units": 5},
        pooling("lrn"),
    ],
    f'layers[2].weights ("d") must match in size. {SIZES} Change "filters" or "kernel".': [
        PICTURE,
        convolution("c"),
        convolution("d", weights={"layer": "c"}),
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_one_sentence(message):
    spec = network(*REFUSED[message])
    with pytest.raises(FitError) as caught:
        bind(spec, TrainingSpec(), FIELDS)
    assert str(caught.value) == f"network.json: {message}"


def test_shapes_follow_from_the_ends_alone():
    spec = network(PICTURE, convolution("c"), {"name": "h", "units": 5})
    assert shapes_of(spec, {"in": 84, "out": 4}) == {"in": (2, 7, 6), "out": (4,), "c": (3, 7, 6), "h": (5,)}
