"""Arguments of a training: documents that are given, those of the run, or the usual ones."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.runs import train
from widenet.runs.documents import documents, goes_on, is_usual, network_of, prepared
from widenet.runs.run_arguments import TrainArguments
from widenet.spec.usual import further_training, usual_network


@pytest.mark.parametrize(("is_sequence", "epochs"), [(False, 20), (True, 10)])
def test_only_the_default_network_has_epochs_and_a_rate_by_the_size(is_sequence, epochs, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3, sequence=is_sequence)
    network, training = documents(None, None, data)
    assert (training.epochs, training.batch_size, training.optimizer.learning_rate) == (epochs, 8, 0.02)
    assert documents(network, None, data)[1] == training
    changed = network.model_dump(mode="json")
    changed["layers"][1]["units"] += 1
    other = documents(changed, None, data)[1]
    assert (other.epochs, other.optimizer.learning_rate) == (10, 0.01)


@pytest.mark.parametrize("is_sequence", [False, True])
def test_a_default_network_stays_one_where_more_features_would_change_its_size(is_sequence, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3, sequence=is_sequence)
    default = documents(None, None, data)[1]
    for num_features in (2**21, 2**22, 2**30):
        smaller = usual_network("items", is_sequence, num_features)
        assert is_usual(smaller, data)
        assert documents(smaller, None, data)[1] == default
    assert not is_usual(usual_network("items", not is_sequence, 3), data)


@pytest.mark.parametrize("named", ["nothing", "network", "fitted", "changed"])
def test_a_training_goes_on_with_the_network_of_its_start_named_or_not(named, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3)
    start, layers = tmp_path / "start", usual_network("items", False, 3).model_dump(mode="json")["layers"]
    layers[1]["units"] = 2
    train({"layers": layers}, {"epochs": 1, "shards": 1}, data, start)
    if named == "fitted":
        layers[2]["neighbourhood"] = {"weight": 2.0}
    if named == "changed":
        layers[0]["denoise"] = 0.1
    network = {"nothing": None, "network": start / "network.json"}.get(named, {"layers": layers})
    given = TrainArguments(network, None, data, tmp_path / "run", start_from=start)
    with prepared(given) as (layout, _):
        assert (layout.training == further_training()) == (named != "changed")
        assert goes_on(given, layout.network) == (named != "changed")
    with prepared(TrainArguments(network, None, data, tmp_path / "run", no_validation=True)) as (layout, _):
        assert layout.training != further_training()


def test_the_default_network_counts_pairs_where_they_are_not_too_many(tmp_path, monkeypatch):
    rows = [[0, 1, 3], [1, 2], [4], []]
    data = dataset_from_lists(tmp_path / "data", rows, heldout=[[4], [3], [2], [1]], width=5)
    along = dataset_from_lists(tmp_path / "along", rows, width=5, sequence=True)
    for most, examples, is_within in ((8, 1, True), (8, 9, True), (7, 3, False)):
        monkeypatch.setattr("widenet.runs.documents.MOST_PAIRS", most)
        monkeypatch.setattr("widenet.runs.documents._EXAMPLES", examples)
        for each in (data, along):
            [output] = network_of(None, each).outputs
            assert (output.neighbourhood is not None) == is_within
