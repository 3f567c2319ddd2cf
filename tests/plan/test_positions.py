"""Which layers go along a sequence, what of it does not fit, and what a plan counts of it."""

import pytest

from tests.sequences import EMBEDDED, HISTORY, NEXT, TIED, gru
from widenet.plan.binding import along_of, bind, sequences_of
from widenet.plan.layout import Job, Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {
    "items": Width(40, "sequence"),
    "other": Width(30, "sequence"),
    "tags": Width(7),
    "age": Width(3, "dense"),
}
TAGS = {"name": "tags", "kind": "input", "field": "tags"}
ABOVE = {"name": "above", "units": 5}


def spec(*layers):
    return NetworkSpec.of({"layers": list(layers)})


def test_layers_above_an_input_of_a_sequence_go_along_it():
    label = {"name": "label", "kind": "output", "field": "tags", "source": "own"}
    network = spec(*EMBEDDED, gru(), TIED, TAGS, {"name": "own", "units": 4}, label)
    assert along_of(network, FIELDS) == dict.fromkeys(["history", "item", "state", "out"], "history")


def job(entries, newest=50, **more):
    training = TrainingSpec.of({"batch_size": 100, "shards": 4, "optimizer": "adam"})
    return Job(
        bind(spec({**HISTORY, "last": newest}, gru(units=64), NEXT), training, FIELDS),
        {"items": entries},
        **more,
    )


def test_vectors_of_a_step_are_positions_of_which_only_the_newest_are_read():
    assert job(20.0).vectors("state") == job(20.0).vectors("out") == 2000
    assert job(200.0).vectors("state") == 5000
    assert job(200.0, newest=3).vectors("out") == 300


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([HISTORY, ABOVE, NEXT], {"items"}),
        ([{**HISTORY, "last": 3}, ABOVE, {"name": "out", "kind": "output", "field": "tags"}], {"items"}),
        ([HISTORY, ABOVE, gru(), {"name": "out", "kind": "output", "field": "tags"}], {"items"}),
        ([TAGS, ABOVE, {"name": "out", "kind": "output", "field": "items"}], set()),
    ],
    ids=["next", "last", "recurrent", "none"],
)
def test_a_document_tells_which_fields_are_sequences(layers, found):
    assert sequences_of(spec(*layers)) == found
