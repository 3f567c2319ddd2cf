"""What only a document and a dataset together can break gives one sentence."""

import pytest

from tests.model.twin import dense_field, sparse
from widenet.errors import FitError
from widenet.model.binding import bind
from widenet.spec.network import NetworkSpec

FIELDS = {"items": sparse(30), "ratings": sparse(30, -1, 5), "age": dense_field(3), "tags": sparse(7)}


def network(entry=(), hidden=(), output=()):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", **dict(entry)},
            {"name": "h", "units": 4, **dict(hidden)},
            {"name": "out", "kind": "output", "field": "items", **dict(output)},
        ]
    }


def test_auto_layers_take_the_width_of_their_field_and_others_their_own():
    assert bind(NetworkSpec.of(network()), FIELDS) == {"in": 30, "h": 4, "out": 30}
    assert bind(NetworkSpec.of(network({"units": 99}, {}, {"units": 30})), FIELDS) == {"in": 99, "h": 4, "out": 30}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (network({"field": "item"}), 'layers[0] ("in"): the dataset has no field "item". Did you mean "items"?'),
        (network({"units": 29}), 'layers[0] ("in"): units must be at least the width of the field "items", 30; got 29. Use "auto".'),
        (network({"field": "age", "denoise": 0.5}), 'layers[0] ("in"): denoise needs a sparse field; "age" is dense. Remove it.'),
        (
            network({"field": "age", "popularity_damping": 1}),
            'layers[0] ("in"): popularity_damping needs a sparse field; "age" is dense. Remove it.',
        ),
        (network({"dropout": 0.5}), 'layers[0] ("in"): dropout needs a dense field; "items" is sparse. Use "denoise".'),
        (network({"field": "age", "units": 4}), 'layers[0] ("in"): units of a dense field must be its width, 3; got 4. Use "auto".'),
        (
            network({}, {}, {"field": "ratings", "activation": "sigmoid"}),
            'layers[2] ("out"): cross_entropy under a sigmoid needs targets from 0 to 1; got -1 to 5. '
            'Use "values": "ignore", or another loss.',
        ),
        (
            network({}, {}, {"field": "age", "activation": "sigmoid"}),
            'layers[2] ("out"): cross_entropy under a sigmoid needs targets from 0 to 1; got -1 to 1. Use another loss.',
        ),
        (
            network({}, {}, {"field": "ratings"}),
            'layers[2] ("out"): cross_entropy under a softmax needs targets of at least 0; got -1. '
            'Use "values": "ignore", or another loss.',
        ),
        (
            {"layers": [network()["layers"][0], network()["layers"][2]]},
            'layers[1] ("out"): an output cannot take the sparse input "in" directly. Put a hidden layer between them.',
        ),
        (
            network({}, {}, {"weights": {"layer": "h"}}),
            "layers[2] (\"out\"): weights must match in size. It needs 4 x 30 weights; those of 'h' are 30 x 4. "
            'Change "units" or "transposed".',
        ),
        (
            network({}, {}, {"field": "tags", "weights": {"layer": "h", "transposed": True}}),
            "layers[2] (\"out\"): weights must match in size. It needs 4 x 7 weights; those of 'h' transposed are 4 x 30. "
            'Change "units" or "transposed".',
        ),
        (
            network(
                {"field": "age"}, {}, {"field": "age", "activation": "linear", "loss": "l2", "weights": {"layer": "h", "transposed": True}}
            ),
            'layers[2] ("out"): weights of sparse inputs and of outputs are cut into shards and can be shared only among themselves.',
        ),
    ],
)
def test_a_misfit_gives_one_sentence(document, message):
    with pytest.raises(FitError) as caught:
        bind(NetworkSpec.of(document), FIELDS)
    assert str(caught.value) == f"network.json: {message}"


def test_ignored_values_may_lie_anywhere():
    bind(NetworkSpec.of(network({}, {}, {"field": "ratings", "values": "ignore", "activation": "sigmoid"})), FIELDS)
