"""The neighbourhood term that is chosen on a validation part: against trainings and evaluations with it."""

import pytest

from tests.mistakes import mistake
from tests.trainings import TIED, tied_near
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.report.listing import list_runs
from widenet.runs import Model, train
from widenet.runs.made_of import fit_neighbourhood, fitted_neighbourhood

WIDTH = 40
"""Items 2 n and 2 n + 1 go together; a network of few units that has hardly learned does not know it."""
PAIRS = [[(user * 7 + step * step * 3) % 20 for step in range(1 + user % 4)] for user in range(90)]
ROWS = [sorted({2 * pair + side for pair in pairs for side in (0, 1)}) for pairs in PAIRS]
TRAINING = {"epochs": 1, "batch_size": 16, "shards": 3, "optimizer": {"kind": "adam", "learning_rate": 0.001}}
ASKED = {"metric": "ndcg@5", "users": 30}
"""Of 60 users with something to find, 30 choose, and 30 judge."""


def world(path, rows=ROWS, **more):
    """A dataset whose users lack one item of their last pair, which is in the validation part."""
    known = [[item for item in row if item != row[-1]] for row in rows]
    validation = [[row[-1]] if user % 3 else [] for user, row in enumerate(rows)]
    return dataset_from_lists(path, known, validation=validation, width=WIDTH, **more)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return world(tmp_path_factory.mktemp("fitted") / "data")


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    return train(tied_near(), TRAINING, data, tmp_path_factory.mktemp("plain") / "run", device="cpu")


@pytest.fixture(scope="module")
def result(plain, tmp_path_factory):
    """What a search finds, and the choices of which it told."""
    tried = []
    out = tmp_path_factory.mktemp("fitted") / "run"
    return fitted_neighbourhood(
        plain.run.path, out, None, ASKED["users"], ASKED["metric"], None, False, tried.append
    ), tried


@pytest.fixture(scope="module")
def fitted(result):
    return result[0][0], result[1]


def test_the_best_of_what_was_tried_is_kept(result, plain, data):
    (model, found), tried = result
    best = max(tried, key=lambda choice: choice.mean)
    assert model.run.network.outputs[0].neighbourhood == found.term == found.best.term == best.term
    assert tried[0].term is found.before.term is None
    assert {choice.term.neighbours for choice in tried[1:]} == {25, 10, 3}
    assert {choice.term.popularity for choice in tried[1:]} == {0.4, 0.2, 0}
    assert {choice.term.floor for choice in tried[1:]} == {0.01, 0.002}
    gain, lower, upper = found.best.gain_over(found.before)
    assert gain == found.best.mean - found.before.mean
    assert 0 < lower < gain < upper
    for each, own in ((model, (best, found.best)), (plain, (tried[0], found.before))):
        whole = each.evaluate(data, "validation", ks=[5])["ndcg@5"]
        assert sum(choice.mean for choice in own) / 2 == pytest.approx(whole, abs=1e-7)
        assert own[0].mean != own[1].mean


def test_the_run_is_that_of_a_training_with_the_term(fitted, data, tmp_path):
    model, _ = fitted
    [output] = model.run.network.outputs
    term = output.neighbourhood.model_dump()
    trained = train(tied_near(**term), TRAINING, data, tmp_path / "run", device="cpu")
    assert trained.fingerprint() == model.fingerprint() == Model.load(model.run.path).fingerprint()
    assert trained.recommend([0, 4], k=5) == Model.load(model.run.path).recommend([0, 4], k=5)
    assert trained.run.network == model.run.network


def test_the_term_of_the_run_is_tried_too_and_its_neighbours_are_replaced(fitted, data, tmp_path):
    model, tried = fitted
    weak = {"weight": 0.001, "neighbours": 2}
    with_term = train(tied_near(**weak), TRAINING, data, tmp_path / "weak", device="cpu")
    again = []
    made = fit_neighbourhood(with_term.run.path, tmp_path / "made", **ASKED, report=again.append)
    assert again[1].term.model_dump()["weight"] == 0.001
    assert [again[0], *again[2:]] == tried
    assert made.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("term", [{}, {"neighbours": 4}])
def test_what_the_run_has_stays_unless_others_gain_by_more_than_chance(term, tmp_path):
    alone = [[user % WIDTH, (user * 7 + 1) % WIDTH] for user in range(60)]
    data = world(tmp_path / "data", alone)
    before = train(tied_near(**term), TRAINING, data, tmp_path / "run", device="cpu")
    made = tmp_path / "made"
    _, found = fitted_neighbourhood(before.run.path, made, None, 99, "ndcg@5", None, False, None)
    assert found.term == before.run.network.outputs[0].neighbourhood == found.before.term
    assert found.best.gain_over(found.before)[1] <= 0
    assert Model.load(tmp_path / "made").fingerprint() == before.fingerprint()
    assert list_runs(tmp_path / "made").runs[0].form is None


def along_a_sequence(**output):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": 3, "activation": "linear", "bias": False},
            {"name": "state", "kind": "recurrent", "cell": "gru", "units": 3},
            {"name": "out", "kind": "output", "field": "items", "predict": "next", **output},
        ]
    }


@pytest.mark.parametrize(("steps", "best"), [(9, "use"), (2, "forward")])
def test_along_a_sequence_all_orders_are_tried(steps, best, tmp_path):
    # Along a ring; without order, the item before the first is as near as the one after the newest. If a
    # user has a single item, only a term that looks forward knows on which side the next one is.
    rows = [[(user * 7 + step) % WIDTH for step in range(steps + user // WIDTH % 2)] for user in range(90)]
    train(along_a_sequence(), TRAINING, world(tmp_path / "data", rows, sequence=True), tmp_path / "run")
    tried = []
    _, found = fitted_neighbourhood(
        tmp_path / "run", tmp_path / "made", None, 30, "ndcg@5", None, False, tried.append
    )
    known = dict.fromkeys((choice.term.order, choice.term.neighbours) for choice in tried[1:])
    assert [*known] == [(order, number) for order in ("ignore", "use", "forward") for number in (25, 10, 3)]
    assert found.best.term.order == best


def made_by_a_group(run, out):
    return fit_neighbourhood(run, out, **ASKED).fingerprint()


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_makes_the_same_run(size, fitted, plain, groups, tmp_path):
    model, _ = fitted
    found = groups(size)(made_by_a_group, str(plain.run.path), str(tmp_path / "run"))
    assert found == [model.fingerprint()] * size
    assert Model.load(tmp_path / "run").run.network == model.run.network


@pytest.mark.parametrize("settings", [{"metric": "coverage@5"}, {"metric": "ndgc@5"}, {"users": 0}])
def test_a_mistake_is_told_before_weights_are_read(settings, plain, tmp_path):
    with mistake(OptionError):
        fit_neighbourhood(plain.run.path, tmp_path / "run", **settings)
    assert not [*tmp_path.iterdir()]


def test_what_cannot_have_or_choose_a_term_says_why(plain, tmp_path):
    without = dataset_from_lists(tmp_path / "without", ROWS, width=WIDTH)
    train(tied_near(), TRAINING, without, tmp_path / "blind", device="cpu")
    with mistake(FitError):
        fit_neighbourhood(tmp_path / "blind", tmp_path / "out")
    without.path.rename(tmp_path / "away")
    with mistake(FitError):
        fit_neighbourhood(tmp_path / "blind", tmp_path / "out")
    other = world(tmp_path / "changed", ROWS[::-1])
    with mistake(FitError):
        fit_neighbourhood(plain.run.path, tmp_path / "out", other)
    with mistake(CheckpointError, option="out"):
        fit_neighbourhood(plain.run.path, plain.run.path.parent)
    side = world(tmp_path / "side", sparse={"tags": [[user % 5] for user in range(len(ROWS))]})
    layers = [{**TIED["layers"][0], "field": "tags"}, {"name": "mid", "units": 3}]
    layers.append({"name": "out", "kind": "output", "field": "items"})
    train({"layers": layers}, TRAINING, side, tmp_path / "other", device="cpu")
    with mistake(FitError):
        fit_neighbourhood(tmp_path / "other", tmp_path / "out")
    assert not (tmp_path / "out").exists()
