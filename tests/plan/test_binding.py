"""Binding: widths of "auto" layers, and every rule that a document and a dataset can only break together."""

from types import SimpleNamespace

import pytest

from widenet.plan.binding import bind, check_evaluation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def field(kind, width, low=1.0, high=1.0):
    return SimpleNamespace(kind=kind, width=width, min_value=low, max_value=high)


FIELDS = {
    "items": field("sparse", 30),
    "tags": field("sparse", 7),
    "rated": field("sparse", 30, low=-1, high=5),
    "age": field("dense", 3, low=-2, high=2),
}


def layers(source=None, middle=None, out=None, more=()):
    """An input, a hidden layer and an output, with changes."""
    return [
        {"name": "in", "kind": "input", "field": "items", **(source or {})},
        {"name": "mid", "units": 5, **(middle or {})},
        *more,
        {"name": "out", "kind": "output", "field": "items", **(out or {})},
    ]


def bound(document):
    return bind(NetworkSpec.of({"layers": document}), TrainingSpec(), FIELDS).units


def test_auto_layers_are_as_wide_as_their_field_and_others_as_they_say():
    assert bound(layers()) == {"in": 30, "mid": 5, "out": 30}
    assert bound(layers({"units": 40}, {"units": 9}, {"units": 31})) == {"in": 40, "mid": 9, "out": 31}
    assert bound(layers({"field": "age"}, out={"field": "tags"})) == {"in": 3, "mid": 5, "out": 7}


TIED = {"weights": {"layer": "mid", "transposed": True}}
LINEAR = {"activation": "linear", "loss": "l2"}


@pytest.mark.parametrize(
    "document",
    [
        layers(out=TIED),
        layers(out={"field": "rated", "values": "ignore"}),
        layers(out={"field": "rated", "activation": "sigmoid", "values": "ignore"}),
        layers(out={"field": "rated", **LINEAR}),
        layers(out={"sample": {"kind": "uniform", "units": 30}}),
        layers({"field": "age", "dropout": 0.5}, out={"field": "age", **LINEAR}),
        layers({"units": 30}, out={"units": 30}),
        layers({"field": "age", "units": 3}),
        layers({"denoise": 0.5, "popularity_damping": 1.0, "units": 35}, out={**TIED, "units": 35}),
        layers(
            more=[{"name": "also", "units": 5, "source": "in", "weights": {"layer": "mid"}}],
            out={"source": ["mid", "also"]},
        ),
    ],
)
def test_what_goes_together_is_bound(document):
    assert bound(document)["mid"] == 5


def test_the_output_that_is_ranked():
    network = NetworkSpec.of(
        {
            "layers": layers(
                out={"source": "mid"},
                more=[{"name": "tag", "kind": "output", "field": "tags", "source": "mid"}],
            )
        }
    )
    for evaluation, expected in (
        (None, None),
        ({"output": "out"}, "out"),
        ({"output": "tag", "metric": "recall@7"}, "tag"),
    ):
        found = check_evaluation(network, TrainingSpec.of({"evaluation": evaluation}))
        assert (found and found.name) == expected
