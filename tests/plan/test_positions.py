"""Which layers go along a sequence, what of it does not fit, and what a plan counts of it."""

import pytest

from tests.sequences import EMBEDDED, HISTORY, NEXT, TIED, attention, gru
from widenet.plan.binding import along_of, bind, sequences_of
from widenet.plan.layout import Job, Width
from widenet.plan.memory import work
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


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_a_recurrent_layer_has_weights_of_its_sources_and_of_its_own_state(cell, gates):
    found = bind(
        spec(HISTORY, gru(cell=cell), gru(name="second", cell=cell, units=9), NEXT), TrainingSpec(), FIELDS
    ).weights
    assert {
        name: (weight.rows, weight.columns, weight.wide)
        for name, weight in found.items()
        if weight.layer != "out"
    } == {
        "state/history": (40, 6 * gates, True),
        "state/state": (6 * gates, 6, False),
        "state bias": (24, None, False),
        "second/state": (9 * gates, 6, False),
        "second/second": (9 * gates, 9, False),
        "second bias": (36, None, False),
    }


def test_an_attention_layer_has_matrices_vectors_of_positions_and_normalizations():
    blocks = [
        attention(positions="absolute", feed_forward=7),
        attention(name="top", positions="none", normalize_output=True),
    ]
    found = bind(spec({**HISTORY, "last": 9}, EMBEDDED[1], *blocks, NEXT), TrainingSpec(), FIELDS).weights
    assert {name: (weight.rows, weight.columns) for name, weight in found.items() if "/" in name} == {
        "item/history": (40, 6),
        **{f"{layer}/projections": (18, 6) for layer in ("state", "top")},
        **{f"{layer}/projections bias": (18, None) for layer in ("state", "top")},
        **{f"{layer}/joined": (6, 6) for layer in ("state", "top")},
        **{f"{layer}/joined bias": (6, None) for layer in ("state", "top")},
        "state/inner": (7, 6),
        "state/inner bias": (7, None),
        "state/outer": (6, 7),
        "top/inner": (6, 6),
        "top/inner bias": (6, None),
        "top/outer": (6, 6),
        **{f"{layer}/outer bias": (6, None) for layer in ("state", "top")},
        "state/positions": (9, 6),
        **{
            f"{layer}/{place} {part}": (6, None)
            for layer, places in {
                "state": ["attention", "feed forward"],
                "top": ["attention", "feed forward", "output"],
            }.items()
            for place in places
            for part in ("scale", "shift")
        },
    }
    assert not any(weight.wide for name, weight in found.items() if name.startswith(("state", "top")))


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


def test_the_logits_that_a_step_sends_are_of_positions():
    ends = {
        name: spec(*EMBEDDED, gru(units=64), {**NEXT, "activation": name, "loss": "l2"})
        for name in ("linear_max", "linear")
    }
    training = TrainingSpec.of({"batch_size": 7, "shards": 4})
    sent = {
        name: work(Job(bind(each, training, FIELDS), {"items": 20.0}, num_processes=2)).sent_bytes
        for name, each in ends.items()
    }
    assert sent["linear_max"] - sent["linear"] == 7 * 20 * 10 * 4 * 2  # positions, units, bytes, shards held


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
