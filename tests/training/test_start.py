"""A start from another run: units keep what they had by the ids of their features; new ones begin as any
do.
"""

import shutil

import pytest
import torch

from tests import sequences
from tests.mistakes import mistake
from tests.starts import CATALOGUES, OLD, begun, grown, made, rows
from tests.trainings import SETTINGS, SPLIT, TIED, UNTIED, WIDTH, books, document
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError
from widenet.runs import Model, train
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory

ORDERED = "grown, smaller and in another order"
BEGINNINGS = [
    *((name, ORDERED, 2) for name in ("momentum", "nesterov", "rmsprop, sampled", "adam, normalized")),
    *(("adam, split", ORDERED, shards) for shards in (2, 3)),
    *(("adam, tied", catalogue, shards) for catalogue in CATALOGUES for shards in (2, 3)),
]


@pytest.mark.parametrize(("name", "catalogue", "shards"), BEGINNINGS)
def test_known_units_keep_weights_and_state_to_the_bit_and_new_ones_are_as_initialized(
    name, catalogue, shards, before, tmp_path
):
    network, training = SETTINGS[name][0], {**SETTINGS[name][1], "shards": shards}
    ids = CATALOGUES[catalogue]
    data = grown(tmp_path / "data", ids)
    net, said = begun(tmp_path, network, training, data, before(name))
    fresh, old = (
        made(network, training, data),
        made(network, {**training, "shards": 3}, books(tmp_path / "old")),
    )
    RunDirectory.open(before(name)).latest().load_into(old, with_state=True)
    was, initial = rows(old), rows(fresh)
    for key, found in rows(net).items():
        origin = [OLD.index(one) if one in OLD else None for one in ids]
        if net.layout.weights[key[0]].split:
            origin = []
        origin += range(len(origin), len(found))  # units of an output beyond its features
        expected = [initial[key][row] if at is None else was[key][at] for row, at in enumerate(origin)]
        assert torch.equal(found, torch.stack(expected)), key
    for key, weight in net.trunk.items():
        assert torch.equal(weight.tensor, old.trunk[key].tensor)
        assert all(torch.equal(state, old.trunk[key].state[each]) for each, state in weight.state.items())
    for key, factors in net.damping.items():
        expected = [
            old.damping[key][OLD.index(one)] if one in OLD else fresh.damping[key][row]
            for row, one in enumerate(ids)
        ]
        assert torch.equal(factors, torch.stack(expected))
    new, gone = len(set(ids) - set(OLD)), len(set(OLD) - set(ids))
    assert len(said) == (1 if catalogue == "the same" else 2)
    assert all(str(number) in said[-1] for number in (new, gone) if number)


def with_split(layers, is_split):
    """A document whose layers with "split" are split or whole."""
    return {"layers": [layer | ({"split": is_split} if "split" in layer else {}) for layer in layers]}


@pytest.mark.parametrize(
    ("kind", "names"),
    [("hidden", ["deep/taste", "deeper/deep"]), ("recurrent", ["state/item", "state/state"])],
)
@pytest.mark.parametrize(("was", "shards"), [(True, 2), (False, 3), (False, 2)])
def test_a_split_layer_begins_with_the_rows_of_a_whole_one_and_the_other_way_round(
    was, shards, kind, names, tmp_path
):
    if kind == "hidden":
        data, layers = books(tmp_path / "data"), SPLIT["layers"]
    else:
        data = sequences.write(tmp_path / "data")
        layers = [*sequences.EMBEDDED, sequences.gru(split=True), sequences.NEXT]
    training = SETTINGS["adam, split"][1]
    model = train(with_split(layers, was), {**training, "keep": "last"}, data, tmp_path / "before")
    latest = RunDirectory.open(tmp_path / "before").latest()
    old = made(with_split(layers, was), training, data)
    latest.load_into(old, with_state=True)
    net, _ = begun(
        tmp_path, with_split(layers, not was), {**training, "shards": shards}, data, tmp_path / "before"
    )
    for name in names:
        in_shards, whole = (net, old) if not was else (old, net)
        weight = whole.trunk[name]
        assert torch.equal(rows(in_shards)[name, "weight"], weight.tensor)
        assert len(weight.state) == 2
        for key, state in weight.state.items():
            assert torch.equal(rows(in_shards)[name, f"state.{key}"], state)
            assert bool(state.any())
        assert model.network.layout.weights[name].split == was


def test_units_without_a_name_do_not_begin_as_features_that_are_gone(tmp_path):
    (*layers, output), training = UNTIED["layers"], document({"kind": "sgd", "learning_rate": 0.2})
    network, run = {"layers": [*layers, {**output, "units": 300}]}, tmp_path / "before"
    train(network, training, books(tmp_path / "old"), run)
    data = grown(tmp_path / "data", OLD[10:])
    found = rows(begun(tmp_path, network, training, data, run)[0])["next", "weight"]
    initial, was = (
        rows(net)["next", "weight"] for net in (made(network, training, data), Model.load(run).network)
    )
    named = WIDTH - 10
    assert torch.equal(found[:named], was[10:WIDTH])
    assert torch.equal(found[named:WIDTH], initial[named:WIDTH])
    assert torch.equal(found[WIDTH:], was[WIDTH:])


def drop_checkpoints(run):
    shutil.rmtree(run / "checkpoints")


CHANGES = {
    "another optimizer": ("adagrad", "last", None),
    "a state of another shape": ({"kind": "adagrad", "per_row": True}, "last", None),
    "no checkpoint": ("adam", "last", drop_checkpoints),
    "weights of an earlier epoch": ("adam", "best", None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_state_that_does_not_belong_to_the_weights_or_the_optimizer_is_not_taken(change, tmp_path):
    optimizer, keep, damage = CHANGES[change]
    kind = "adam" if isinstance(optimizer, str) else "adagrad"
    data, training = books(tmp_path / "data"), document({"kind": kind, "learning_rate": 2.5}, keep=keep)
    train(TIED, training, data, tmp_path / "before")
    facts = Checkpoint.open(tmp_path / "before" / "model").facts
    assert keep == "last" or facts["best_epoch"] < facts["epochs"]
    if damage is not None:
        damage(tmp_path / "before")
    net, _ = begun(tmp_path, TIED, document(optimizer), data, tmp_path / "before")
    assert not any(state.any() for (_, key), state in rows(net).items() if key.startswith("state"))
    assert torch.equal(
        rows(net)["next bias", "weight"], rows(Model.load(tmp_path / "before").network)["next bias", "weight"]
    )


def trained(network, training, data, out, start):
    return train(network, training, data, out, start_from=start).fingerprint()


def test_a_training_of_a_grown_catalogue_has_the_same_bits_in_every_number_of_processes_and_recommends_all(
    before, tmp_path, groups
):
    network, training = SETTINGS["adam, tied"][0], {**SETTINGS["adam, tied"][1], "shards": 4}
    data, start = grown(tmp_path / "data", CATALOGUES["grown"]), before("adam, tied")
    one = trained(network, training, data, tmp_path / "one", start)
    words = network, training, tmp_path / "data", tmp_path / "3", start
    assert groups(3)(trained, *words) == [one] * 3
    found = Model.load(tmp_path / "one").recommend(["3", "a"], k=40)
    assert {each.item for each in found} == {*CATALOGUES["grown"]} - {"3", "a"}


def test_an_output_on_a_sparse_input_does_not_begin_with_weights(before, tmp_path):
    run, documents = before("momentum, on the input"), SETTINGS["momentum, on the input"]
    with mistake(CheckpointError, place=run):
        begun(tmp_path, *documents, books(tmp_path / "data"), run)


def test_weights_of_another_field_are_left_and_named(before, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1]], validation=[[2]], width=3, sparse={"tags": [[0]]})
    network = {"layers": [{**UNTIED["layers"][0], "field": "tags"}, *UNTIED["layers"][1:]]}
    net, said = begun(tmp_path, network, SETTINGS["momentum"][1], data, before("momentum"))
    assert "taste/history" in said[0]
    was = rows(Model.load(before("momentum")).network)["next", "weight"]
    assert torch.equal(rows(net)["next", "weight"], was[:3])
