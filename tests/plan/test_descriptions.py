"""Runs whose items are described: their bits, their recommendations, and what they refuse."""

import pytest
import torch

from tests.described import COLD, INTERRUPTED, ITEMS, TRAINING, USERS, described, interrupt, network
from tests.rows import all_rows
from widenet.errors import CheckpointError
from widenet.plan.binding import bind
from widenet.plan.layout import Job
from widenet.plan.memory import memory
from widenet.runs import Model, train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return described(tmp_path_factory.mktemp("described") / "data")


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A finished run for each network."""
    folder = tmp_path_factory.mktemp("runs")
    return {tied: train(network(tied), TRAINING, data, folder / f"tied {tied}") for tied in (True, False)}


def used(out, data):
    model = Model.load(out)
    ranked = [(block.items, block.scores.tolist()) for block in model.predict(data, k=6, part="heldout")]
    return model.fingerprint(), dict(model.evaluate(data, ks=[5])), ranked


def trained(document, data, out):
    train(document, TRAINING, data, out)
    return used(out, data)


@pytest.mark.parametrize("tied", [True, False])
def test_any_number_of_processes_trains_and_reads_the_same_model(tied, runs, data, groups, tmp_path):
    alone = used(runs[tied].run.path, data.path)
    size = 3 if tied else 2
    assert groups(size)(trained, network(tied), data.path, tmp_path / "run") == [alone] * size


@pytest.mark.parametrize("tied", [True, False])
def test_a_resumed_training_ends_with_the_same_bits(tied, runs, data, tmp_path):
    interrupt(network(tied), data, tmp_path / "run")
    train(network(tied), INTERRUPTED, data, tmp_path / "run", resume=True)
    assert Model.load(tmp_path / "run").fingerprint() == runs[tied].fingerprint()


def test_items_that_nobody_had_are_recommended_by_what_they_are(runs):
    """A reader of poems alone gets the poems that nobody has read, as their titles tell."""
    poems = [f"i{item}" for item in range(0, ITEMS - COLD, 3)]
    cold = [f"i{item}" for item in range(ITEMS - COLD, ITEMS)]
    for model in runs.values():
        found = model.recommend(poems[:3], k=2, only=cold)
        assert sorted(each.item for each in found) == ["i18", "i21"]
        assert model.attributes_of([found[0].item], ["genre"]) == [{"genre": "poem"}]


def test_a_run_needs_neither_attributes_nor_data_to_recommend(runs, data, tmp_path):
    model = runs[True]
    expected = model.recommend(["i0", "i3"], k=4)
    away = data.path.rename(tmp_path / "away")
    try:
        assert Model.load(model.run.path).recommend(["i0", "i3"], k=4) == expected
    finally:
        away.rename(data.path)


def test_a_training_that_goes_on_has_the_network_of_its_start_without_descriptions(data, tmp_path):
    training = {**TRAINING, "epochs": 1}
    first = train(None, training, data, tmp_path / "first")
    assert first.run.network.layer("taste").described_by == ("genre", "price")
    later = train(None, training, data, tmp_path / "later", start_from=first.run.path)
    taste = first.run.network.layer("taste").model_copy(update={"described_by": None})
    assert later.run.network.layer("taste") == taste
    lazy = {**training, "optimizer": {"kind": "sgd", "learning_rate": 1e-30}}
    same = train(None, lazy, data, tmp_path / "same", start_from=first.run.path)
    rows = [all_rows(model.network.wide["taste/history"]) for model in (first, same)]
    torch.testing.assert_close(*rows, atol=1e-20, rtol=0)


def test_a_training_cannot_start_from_another_run(runs, data, tmp_path):
    with pytest.raises(CheckpointError):
        train(network(), TRAINING, data, tmp_path / "run", start_from=runs[True].run.path)


def test_a_plan_counts_vectors_and_attributes(data):
    def needed(document):
        layout = bind(NetworkSpec.of(document), TrainingSpec.of(TRAINING), data.fields)
        job = Job(layout, {"items": 4.0}, USERS, num_processes=2)
        return memory(job)

    plain = network()
    del plain["layers"][1]["described_by"]
    with_, without = needed(network()), needed(plain)
    vectors, rows = 4 * 6 * (3 + 1), 12
    assert with_.weights - without.weights == vectors + rows * (5 * 52 + 8)
    assert with_.state - without.state == 2 * vectors
