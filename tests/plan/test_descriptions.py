"""Runs whose items are described: their bits, their recommendations, and what they refuse."""

import pytest

from tests.described import COLD, INTERRUPTED, ITEMS, TRAINING, described, interrupt, network
from widenet.runs import Model, train


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


def test_a_resumed_training_ends_with_the_same_bits(runs, data, tmp_path):
    interrupt(network(), data, tmp_path / "run")
    train(network(), INTERRUPTED, data, tmp_path / "run", resume=True)
    assert Model.load(tmp_path / "run").fingerprint() == runs[True].fingerprint()


def test_items_that_nobody_had_are_recommended_by_what_they_are(runs):
    """A reader of poems alone gets the poems that nobody has read, as their titles tell."""
    poems = [f"i{item}" for item in range(0, ITEMS - COLD, 3)]
    cold = [f"i{item}" for item in range(ITEMS - COLD, ITEMS)]
    for model in runs.values():
        found = model.recommend(poems[:3], k=2, only=cold)
        assert sorted(each.item for each in found) == ["i18", "i21"]
        assert model.attributes_of([found[0].item], ["genre"]) == [{"genre": "poem"}]
