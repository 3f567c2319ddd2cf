"""Binding: widths of "auto" layers, and every rule that a document and a dataset can only break together."""

from types import SimpleNamespace

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


def test_sparse_inputs_are_told_from_everything_else():
    dense, sparse = (NetworkSpec.of({"layers": layers(source)}) for source in ({"field": "age"}, None))
    assert bind(dense, TrainingSpec(), FIELDS).features == set()
    assert bind(sparse, TrainingSpec(), FIELDS).features == {"in"}


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
