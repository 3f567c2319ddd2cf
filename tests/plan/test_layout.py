"""What follows from a network and its data: units, shapes, weights, and what is divided among processes."""

from types import SimpleNamespace

import pytest

from tests.sequences import HISTORY, NEXT, gru
from widenet.plan.binding import bind, sequences_of, windows_of
from widenet.plan.layout import Axis, Width
from widenet.plan.weights import fields_by_examples
from widenet.spec.layers import ConvolutionLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def field(kind, width, low=1.0, high=1.0, **more):
    return SimpleNamespace(kind=kind, width=width, min_value=low, max_value=high, **more)


SETS = {
    "items": field("sparse", 30, described={"genre": 3}),
    "tags": field("sparse", 7),
    "rated": field("sparse", 30, low=-1, high=5),
    "shares": field("sparse", 30, low=0, high=1.5),
    "age": field("dense", 3, low=-2, high=2),
}
SEQUENCES = {"items": Width(40, "sequence"), "other": Width(30, "sequence"), "tags": Width(7)}
PICTURES = {"pixels": Width(84, kind="dense"), "items": Width(29), "label": Width(4)}
TAGS = {"name": "tags", "kind": "input", "field": "tags"}
ABOVE = {"name": "above", "units": 5}
PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [2, 7, 6]}
LINEAR = {"activation": "linear", "loss": "l2"}
SHARED = {"weights": {"layer": "mid", "transposed": True}}


def layers(source=None, middle=None, out=None, more=()):
    """An input, a hidden layer and an output, with changes."""
    return [
        {"name": "in", "kind": "input", "field": "items", **(source or {})},
        {"name": "mid", "units": 5, **(middle or {})},
        *more,
        {"name": "out", "kind": "output", "field": "items", **(out or {})},
    ]


def pictured(*some):
    return [*some, {"name": "out", "kind": "output", "field": "label"}]


def convolution(name, **settings):
    return {"name": name, "kind": "convolution", "filters": 3, "kernel": 3, **settings}


def pooling(function, **settings):
    return {"name": "p", "kind": "pooling", "function": function, **settings}


def bound(document, fields=SETS, **training):
    return bind(NetworkSpec.of({"layers": document}), TrainingSpec.of(training), fields)


OUT = {"name": "out", "kind": "output", "field": "items"}


def split(units, *, layer=None, field="items", **training):
    """The weights that are split, of two layers of so many units."""
    second = {"name": "second", "units": units, **(layer or {})}
    document = layers({"field": field, "last": 1} if field == "song" else {}, {"units": units}, more=[second])
    fields = {"items": Width(50), "song": Width(50, kind="sequence")}
    layout = bound(document, fields, **{"optimizer": "sgd", "batch_size": 128, **training})
    parts = [name for name, weight in layout.weights.items() if weight.split]
    wide = [name for name, weight in layout.weights.items() if weight.wide and not weight.split]
    assert layout.sharded == [*wide, *parts]
    return parts


@pytest.mark.parametrize(
    ("units", "more", "expected"),
    [
        (2048, {}, True),  # of 16 mebibytes
        (2047, {}, False),
        (2048, {"layer": {"split": False}}, False),
        (3, {"layer": {"split": True}}, True),
        # A step sends 12 bytes for each example and unit; weight and state take 4 bytes a number each.
        (2048, {"batch_size": 682}, True),
        (2048, {"batch_size": 683}, False),
        (2048, {"batch_size": 683, "optimizer": "momentum"}, True),
        (2048, {"batch_size": 2049, "optimizer": "adam"}, False),
    ],
    ids=str,
)
def test_large_weights_are_split_whose_step_sends_less_than_they_take(units, more, expected):
    assert split(units, **more) == (["second/mid"] if expected else [])


@pytest.mark.parametrize(
    ("units", "layer", "expected"),
    [
        (1183, {}, True),
        (1182, {}, False),
        (1024, {"cell": "lstm"}, True),
        (1023, {"cell": "lstm"}, False),
        (2048, {"split": False}, False),
        (3, {"split": True}, True),
    ],
    ids=str,
)
def test_gates_are_split_as_the_units_of_hidden_layers_are(units, layer, expected):
    found = split(units, layer={"kind": "recurrent", **layer}, field="song")
    assert found == (["second/mid", "second/second"] if expected else [])


def by_examples(batch_size=64, first=None, second=None, last=("best", "even")):
    """Two convolutions, each followed by pooling, on pictures of 8 x 8."""
    document = [
        {"name": "picture", "kind": "input", "field": "pixels", "shape": [3, 8, 8]},
        convolution("first", **{"filters": 16, **(first or {})}),
        {**pooling("lrn"), "name": "even"},
        convolution("second", **{"filters": 4, **(second or {})}),
        {**pooling("max", kernel=2), "name": "best"},
        {"name": "h", "units": 5, "source": list(last)},
        OUT,
    ]
    return bound(document, {"items": Width(50), "pixels": Width(192, "dense")}, batch_size=batch_size)


ENOUGH = -(-(2**26) // (4 * (2 * 16 * 64 + 4 * 64 + 4 * 16)))
"""Examples whose units have 64 mebibytes."""
ALL = ("first", "even", "second", "best")


@pytest.mark.parametrize(
    ("batch_size", "more", "expected"),
    [
        (ENOUGH, {}, ALL),
        (ENOUGH - 1, {}, ()),
        (2, {"second": {"split": True}}, ALL),
        (10**5, {"first": {"split": False}}, ()),
        (10**5, {"second": {"split": False}}, ALL[:2]),
        # These take their batch together.
        (10**5, {"second": {"dropout": 0.1}}, ALL[:2]),
        (10**5, {"second": {"batch_normalization": True}}, ALL[:2]),
        (10**5, {"second": {"sparseness": {}}}, ALL[:2]),
        (10**5, {"second": {"delta_norm": 1.0}}, ALL[:2]),
    ],
    ids=str,
)
def test_the_first_convolutions_of_large_batches_are_divided_by_examples(batch_size, more, expected):
    assert by_examples(batch_size, **more).by_examples == expected


def test_a_field_that_others_read_too_is_read_whole():
    own, shared = (by_examples(10**5, last=last) for last in (("best", "even"), ("best", "picture")))
    assert (own.by_examples, shared.by_examples) == (ALL, ALL)
    assert (fields_by_examples(own), fields_by_examples(shared)) == (["pixels"], [])


@pytest.mark.parametrize(
    ("some", "found"),
    [
        ([HISTORY, ABOVE, NEXT], {"items"}),
        ([{**HISTORY, "last": 3}, ABOVE, {**OUT, "field": "tags"}], {"items"}),
        ([HISTORY, ABOVE, gru(), {**OUT, "field": "tags"}], {"items"}),
        ([TAGS, ABOVE, OUT], set()),
    ],
)
def test_a_document_tells_which_fields_are_sequences(some, found):
    assert sequences_of(NetworkSpec.of({"layers": some})) == found


def windows(source, **settings):
    layer = ConvolutionLayer(kind="convolution", name="c", filters=3, **settings)
    return windows_of('network.json: layers[1].{} ("c")'.format, layer, "in", source)


@pytest.mark.parametrize(
    ("places", "kernel", "stride", "padding", "expected"),
    [
        (7, 2, 1, "same", (7, 0, 1)),
        (7, 3, 2, "same", (4, 1, 1)),
        (8, 3, 2, "same", (4, 0, 1)),
        (2, 5, 1, "same", (2, 2, 2)),
        (8, 3, 2, "valid", (3, 0, 0)),
        (7, 3, 1, 2, (9, 2, 2)),
        (8, 3, 2, 1, (4, 1, 0)),
        (8, 4, 1, "dsstne", (8, 2, 1)),
        (8, 3, 2, "dsstne", (3, 0, 0)),
        (2, 5, 1, "dsstne", (1, 2, 1)),
        (2, 4, 3, "dsstne", (1, 1, 1)),
    ],
    ids=str,
)
def test_positions_and_padding_before_and_after_along_an_axis(places, kernel, stride, padding, expected):
    (axis,) = windows((1, places), kernel=(kernel,), stride=stride, padding=padding).axes
    assert axis == Axis(places, kernel, stride, *expected)
