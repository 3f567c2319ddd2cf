"""The neighbourhood term that is chosen on a validation part: against trainings and evaluations with it."""

import json

import pytest

import widenet
from tests.trainings import TIED
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, DataError, FitError, OptionError
from widenet.model.neighbourhood import Neighbourhood
from widenet.runs import Model, train
from widenet.runs.neighbourhood import fit_neighbourhood

WIDTH = 40
"""Items 2 n and 2 n + 1 go together; a network of few units that has hardly learned does not know it."""
PAIRS = [[(user * 7 + step * step * 3) % 20 for step in range(1 + user % 4)] for user in range(90)]
ROWS = [sorted({2 * pair + side for pair in pairs for side in (0, 1)}) for pairs in PAIRS]
TRAINING = {"epochs": 1, "batch_size": 16, "shards": 3, "optimizer": {"kind": "adam", "learning_rate": 0.001}}
ASKED = {"metric": "ndcg@5"}


def world(path, rows=ROWS, **more):
    """A dataset whose users lack one item of their last pair, which is in the validation part."""
    known = [[item for item in row if item != row[-1]] for row in rows]
    validation = [[row[-1]] if user % 3 else [] for user, row in enumerate(rows)]
    return dataset_from_lists(path, known, validation=validation, width=WIDTH, **more)


def document(**term):
    """A small network, with a term if its settings are given."""
    layers = json.loads(json.dumps(TIED["layers"]))
    layers[-1] |= {"neighbourhood": term} if term else {}
    return {"layers": layers}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return world(tmp_path_factory.mktemp("fitted") / "data")


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    return train(document(), TRAINING, data, tmp_path_factory.mktemp("plain") / "run", device="cpu")


@pytest.fixture(scope="module")
def fitted(plain, tmp_path_factory):
    tried = []
    out = tmp_path_factory.mktemp("fitted") / "run"
    return fit_neighbourhood(plain.run.path, out, **ASKED, report=tried.append), tried


def test_the_best_of_what_was_tried_is_kept(fitted, plain, data):
    model, tried = fitted
    best = max(tried, key=lambda choice: choice.mean)
    [output] = model.run.network.outputs
    assert output.neighbourhood == best.term is not None
    assert tried[0].term is None
    assert {choice.term.neighbours for choice in tried[1:]} == {25, 10, 3}
    assert {choice.term.popularity for choice in tried[1:]} == {0.4, 0.2, 0}
    assert {choice.term.floor for choice in tried[1:]} == {0.01, 0.002}
    assert best.mean == model.evaluate(data, "validation", ks=[5])["ndcg@5"]
    assert tried[0].mean == plain.evaluate(data, "validation", ks=[5])["ndcg@5"] < 0.7 * best.mean
    gain, lower, upper = best.gain_over(tried[0])
    assert gain == best.mean - tried[0].mean
    assert 0 < lower < gain < upper


def test_weights_grow_or_shrink_as_long_as_it_helps(fitted):
    _, tried = fitted
    for neighbours in (25, 10, 3):
        own = [choice for choice in tried[1:] if choice.term.neighbours == neighbours]
        best = max(own, key=lambda choice: choice.mean)
        rivals = {
            choice.term.weight: choice.mean
            for choice in own
            if (choice.term.floor, choice.term.popularity) == (best.term.floor, best.term.popularity)
        }
        assert rivals[2 * best.term.weight] <= best.mean
        assert max(rivals) > 0.8 or min(rivals) < 0.8


def test_the_run_is_that_of_a_training_with_the_term(fitted, data, tmp_path):
    model, _ = fitted
    [output] = model.run.network.outputs
    term = output.neighbourhood.model_dump()
    trained = train(document(**term), TRAINING, data, tmp_path / "run", device="cpu")
    assert trained.fingerprint() == model.fingerprint() == Model.load(model.run.path).fingerprint()
    assert trained.recommend([0, 4], k=5) == Model.load(model.run.path).recommend([0, 4], k=5)
    assert trained.run.network == model.run.network


def test_the_term_of_the_run_is_tried_too_and_its_neighbours_are_replaced(fitted, data, tmp_path):
    model, tried = fitted
    weak = {"weight": 0.001, "neighbours": 2}
    with_term = train(document(**weak), TRAINING, data, tmp_path / "weak", device="cpu")
    again = []
    made = fit_neighbourhood(with_term.run.path, tmp_path / "made", **ASKED, report=again.append)
    assert again[1].term.model_dump()["weight"] == 0.001
    assert [again[0], *again[2:]] == tried
    assert made.fingerprint() == model.fingerprint()


def test_fewer_users_are_drawn(plain, tmp_path):
    tried = []
    fit_neighbourhood(plain.run.path, tmp_path / "run", users=7, **ASKED, report=tried.append)
    assert {len(choice.values_E) for choice in tried} == {7}


def test_no_term_is_the_best_where_nothing_occurs_together(tmp_path):
    alone = [[user % WIDTH, (user + 1) % WIDTH] for user in range(60)]
    data = world(tmp_path / "data", alone)
    train(document(neighbours=4), TRAINING, data, tmp_path / "run", device="cpu")
    made = fit_neighbourhood(tmp_path / "run", tmp_path / "made", **ASKED)
    assert made.run.network.outputs[0].neighbourhood is None
    plain = train(document(), TRAINING, data, tmp_path / "plain", device="cpu")
    assert Model.load(made.run.path).fingerprint() == plain.fingerprint()


def test_a_network_along_a_sequence_may_have_a_term(tmp_path):
    rows = [[item for pair in pairs for item in (2 * pair, 2 * pair + 1)] for pairs in PAIRS]
    data = world(tmp_path / "data", rows, sequence=True)
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 3, "activation": "linear", "bias": False},
        {"name": "state", "kind": "recurrent", "cell": "gru", "units": 3},
        {"name": "out", "kind": "output", "field": "items", "predict": "next"},
    ]
    train({"layers": layers}, TRAINING, data, tmp_path / "run", device="cpu")
    tried = []
    made = fit_neighbourhood(tmp_path / "run", tmp_path / "made", **ASKED, report=tried.append)
    assert made.run.network.outputs[0].neighbourhood is not None
    best = max(choice.mean for choice in tried)
    assert best == Model.load(made.run.path).evaluate(data, "validation", ks=[5])["ndcg@5"]


def made_by_a_group(run, out):
    return fit_neighbourhood(run, out, **ASKED).fingerprint()


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_makes_the_same_run(size, fitted, plain, groups, tmp_path):
    model, _ = fitted
    found = groups(size)(made_by_a_group, str(plain.run.path), str(tmp_path / "run"))
    assert found == [model.fingerprint()] * size
    assert Model.load(tmp_path / "run").run.network == model.run.network


def test_it_goes_on_with_what_a_run_is_made_of(fitted, tmp_path):
    model, _ = fitted
    small = widenet.quantize(model.run.path, tmp_path / "small")
    assert small.run.network == model.run.network
    assert json.loads((model.run.path / "machine.json").read_text())["data"]
    again = fit_neighbourhood(small.run.path, tmp_path / "again", **ASKED)
    assert again.facts["bits"] == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "coverage@5"}, r'`metric` must be a mean over users; got "coverage@5"\. Take "ndcg@5"'),
        ({"metric": "ndgc@5"}, r'"ndgc@5" is not a known metric\. Did you mean "ndcg@5"'),
        ({"users": 0}, r"`users` must be at least 1; got 0"),
    ],
)
def test_a_mistake_is_told_before_weights_are_read(settings, message, plain, tmp_path):
    with pytest.raises(OptionError, match=message):
        fit_neighbourhood(plain.run.path, tmp_path / "run", **settings)
    assert not [*tmp_path.iterdir()]


def test_what_cannot_have_or_choose_a_term_says_why(plain, tmp_path):
    without = dataset_from_lists(tmp_path / "without", ROWS, width=WIDTH)
    train(document(), TRAINING, without, tmp_path / "blind", device="cpu")
    rule = r'has no validation part of "items"\. Set one aside with `validation=0.1`, and train again'
    with pytest.raises(FitError, match=rule):
        fit_neighbourhood(tmp_path / "blind", tmp_path / "out")
    without.path.rename(tmp_path / "away")
    with pytest.raises(FitError, match=r"blind: the dataset of its training is gone\. Put it back"):
        fit_neighbourhood(tmp_path / "blind", tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"holds a run already|not empty|exists"):
        fit_neighbourhood(plain.run.path, plain.run.path.parent)
    side = world(tmp_path / "side", sparse={"tags": [[user % 5] for user in range(len(ROWS))]})
    layers = [{**TIED["layers"][0], "field": "tags"}, {"name": "mid", "units": 3}]
    layers.append({"name": "out", "kind": "output", "field": "items"})
    train({"layers": layers}, TRAINING, side, tmp_path / "other", device="cpu")
    with pytest.raises(FitError, match=r'output "out" can have no neighbourhood term, which needs an input'):
        fit_neighbourhood(tmp_path / "other", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_left_of_a_search_that_fails(plain, monkeypatch, tmp_path):
    def fail(*_):
        raise DataError("no more")

    monkeypatch.setattr(Neighbourhood, "take", fail)
    with pytest.raises(DataError, match="no more"):
        fit_neighbourhood(plain.run.path, tmp_path / "run", **ASKED)
    assert not [*tmp_path.iterdir()]
