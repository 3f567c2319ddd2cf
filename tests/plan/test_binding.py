"""Binding: widths of "auto" layers, and every rule that a document and a dataset can only break together."""

import json
from types import SimpleNamespace

import pytest

from widenet.errors import FitError
from widenet.plan.binding import bind
from widenet.plan.layout import is_sparse_input
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
    spec = NetworkSpec.of({"layers": layers({"field": "age"})})
    assert [is_sparse_input(spec, name, FIELDS) for name in ("in", "mid", "out")] == [False] * 3
    assert is_sparse_input(NetworkSpec.of({"layers": layers()}), "in", FIELDS)


TIED = {"weights": {"layer": "mid", "transposed": True}}
LINEAR = {"activation": "linear", "loss": "l2"}

MISTAKES = {
    "unknown field": (
        layers({"field": "item"}),
        'layers[0].field ("in"): the dataset has no field "item". Did you mean "items"?',
    ),
    "unknown field of an output": (
        layers(out={"field": "x"}),
        'layers[2].field ("out"): the dataset has no field "x". Known: items, tags, rated, age.',
    ),
    "narrow input": (
        layers({"units": 29}),
        'layers[0].units ("in") must be at least the width of the field "items", 30; got 29. Use "auto".',
    ),
    "narrow output": (
        layers(out={"units": 1}),
        'layers[2].units ("out") must be at least the width of the field "items", 30; got 1.',
    ),
    "wide dense input": (
        layers({"field": "age", "units": 4}),
        'layers[0].units ("in") of a dense field must be its width, 3; got 4.',
    ),
    "denoised dense input": (
        layers({"field": "age", "denoise": 0.5}),
        'layers[0].denoise ("in") needs a sparse field; "age" is dense. Remove it.',
    ),
    "damped dense input": (
        layers({"field": "age", "popularity_damping": 1}),
        'layers[0].popularity_damping ("in") needs a sparse field; "age" is dense.',
    ),
    "dropout of a sparse input": (
        layers({"dropout": 0.5}),
        'layers[0].dropout ("in") needs a dense field; "items" is sparse. Use "denoise".',
    ),
    "sigmoid of large values": (
        layers(out={"field": "rated", "activation": "sigmoid"}),
        (
            'layers[2].loss ("out"): cross_entropy under a sigmoid needs targets from 0 to 1; got -1 to 5. '
            'Use "values": "ignore", or another loss.'
        ),
    ),
    "sigmoid of dense values": (
        layers(out={"field": "age", "activation": "sigmoid"}),
        "got -2 to 2. Use another loss.",
    ),
    "softmax of negative values": (
        layers(out={"field": "rated"}),
        'layers[2].loss ("out"): cross_entropy under a softmax needs targets of at least 0; got -1.',
    ),
    "a sample of a dense field": (
        layers(out={"field": "age", **LINEAR, "sample": "uniform"}),
        'layers[2].sample ("out") needs a sparse field; "age" is dense. Remove it.',
    ),
    "more draws than units": (
        layers(out={"sample": {"kind": "popularity", "units": 31}}),
        (
            'layers[2].sample.units ("out") must be at most the width, 30; got 31. Lower it, or remove'
            ' "sample" to train on all units.'
        ),
    ),
    "output on a sparse input beside others": (
        layers(out={"source": ["in", "mid"]}),
        (
            'layers[2].source ("out"): an output cannot take the sparse input "in" directly beside other'
            " sources. Put a hidden layer between"
        ),
    ),
    "neighbourhood of numbers": (
        layers({"field": "age"}, out={"field": "age", "neighbourhood": {}, **LINEAR}),
        'layers[2].neighbourhood ("out") needs a sparse field or a sequence; "age" is dense. Remove it.',
    ),
    "cosine on a sparse input": (
        [*layers()[:1], {"name": "out", "kind": "output", "field": "items", "cosine": {}}],
        (
            'layers[1].cosine ("out") needs a hidden layer between the output and the sparse input "in". Add'
            " one, or remove it."
        ),
    ),
    "a weight shared by an output on a sparse input": (
        [
            *layers()[:1],
            {"name": "a", "kind": "output", "field": "items"},
            {"name": "b", "kind": "output", "field": "items", "source": "in", "weights": {"layer": "a"}},
        ],
        (
            'layers[1].source ("a") shares weights with others, and so needs a hidden layer between it and'
            ' the sparse input "in". Add one.'
        ),
    ),
    "tied to another width": (
        layers(out={**TIED, "field": "tags"}),
        (
            "layers[2].weights (\"out\") must match in size. It needs 5 x 7 weights; those of 'mid'"
            " transposed are 5 x 30."
        ),
    ),
    "tied the wrong way round": (
        layers(out={"weights": {"layer": "mid"}}),
        "layers[2].weights (\"out\") must match in size. It needs 5 x 30 weights; those of 'mid' are 30 x 5.",
    ),
    "wide and narrow weights": (
        layers(
            {"field": "tags"},
            {"units": 7},
            {"field": "tags", "weights": {"layer": "deep", "transposed": True}},
            [{"name": "deep", "units": 7}],
        ),
        (
            'layers[3].weights ("out"): those of sparse inputs and of outputs are cut into shards and can be'
            " shared only among themselves."
        ),
    ),
    "square but not transposed": (
        layers({"field": "tags"}, {"units": 7}, {"field": "tags", "weights": {"layer": "mid"}}),
        (
            'layers[2].weights ("out"): an input and an output share weights with "transposed": true, two of'
            " a kind with false."
        ),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_does_not_go_together_is_named_with_its_layer(name):
    document, message = MISTAKES[name]
    with pytest.raises(FitError) as caught:
        bound(document)
    assert str(caught.value).startswith("network.json: layers[")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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


OF_A_TRAINING = {
    "l2 and described": ({"l2": 0.5}, {"described_by": "genre"}),
    "adamw and described": ({"optimizer": "adamw"}, {"described_by": "genre"}),
}


@pytest.mark.parametrize("mistake", OF_A_TRAINING)
def test_a_refusal_names_the_file_of_the_training(mistake, tmp_path):
    settings, middle = OF_A_TRAINING[mistake]
    file, fields = tmp_path / "b11.json", FIELDS | {"items": field("sparse", 30)}
    fields["items"].described = {"genre": 3}
    file.write_text(json.dumps(settings))
    more = [{"name": "last", "units": 4}]
    network = NetworkSpec.of({"layers": layers(middle=middle, more=more)})
    with pytest.raises(FitError) as refused:
        bind(network, TrainingSpec.read(file), fields)
    assert str(file) in str(refused.value)
    assert "training.json" not in str(refused.value)
