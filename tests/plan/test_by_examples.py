"""Which convolutions are divided by examples: the first ones of large batches, unless the document says
otherwise.
"""

import pytest

from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.plan.weights import fields_by_examples
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {"items": Width(50), "pixels": Width(3 * 8 * 8, kind="dense")}


def bound(batch_size=64, *, first=None, second=None):
    """A layout of two convolutions, each followed by pooling, on pictures of 8 x 8."""
    layers = [
        {"name": "picture", "kind": "input", "field": "pixels", "shape": [3, 8, 8]},
        {"name": "first", "kind": "convolution", "filters": 16, "kernel": 3, **(first or {})},
        {"name": "even", "kind": "pooling", "function": "lrn"},
        {"name": "second", "kind": "convolution", "filters": 4, "kernel": 3, **(second or {})},
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {"name": "h", "units": 5, "source": ["best", "even"]},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    return bind(NetworkSpec.of({"layers": layers}), TrainingSpec.of({"batch_size": batch_size}), FIELDS)


def test_units_of_64_mebibytes_in_a_batch_are_divided():
    units = 2 * 16 * 64 + 4 * 64 + 4 * 16
    enough = -(-(2**26) // (4 * units))
    assert bound(enough).by_examples == ("first", "even", "second", "best")
    assert bound(enough - 1).by_examples == ()


def test_the_document_may_say_otherwise():
    assert bound(2, second={"split": True}).by_examples == ("first", "even", "second", "best")
    assert bound(10**5, first={"split": False}).by_examples == ()
    assert bound(10**5, second={"split": False}).by_examples == ("first", "even")


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 0.1}, {"batch_normalization": True}, {"sparseness": {}}, {"delta_norm": 1.0}],
    ids=str,
)
def test_a_layer_that_takes_its_batch_together_ends_them_and_must_not_be_split(settings):
    assert bound(10**5, second=settings).by_examples == ("first", "even")


def test_a_field_that_others_read_too_is_read_whole():
    layout = bound(2, first={"split": True})
    assert fields_by_examples(layout) == ["pixels"]
    layers = [layer.model_dump(exclude_unset=True) for layer in layout.network.layers]
    layers[-2]["source"] = ["best", "picture"]
    wider = bind(NetworkSpec.of({"layers": layers}), layout.training, FIELDS)
    assert (wider.by_examples, fields_by_examples(wider)) == (("first", "even", "second", "best"), [])
