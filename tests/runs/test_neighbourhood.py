"""The neighbourhood term that a training fits when it ends: against trainings and evaluations with it."""

import json

import pytest

from tests.trainings import tied_near
from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, train
from widenet.runs.neighbourhood import search, words_of
from widenet.training.state import Report

WIDTH = 40
"""Items 2 n and 2 n + 1 go together; a network of few units that has hardly learned does not know it."""
PAIRS = [[(user * 7 + step * step * 3) % 20 for step in range(1 + user % 4)] for user in range(90)]
ROWS = [sorted({2 * pair + side for pair in pairs for side in (0, 1)}) for pairs in PAIRS]
TRAINING = {"epochs": 1, "batch_size": 16, "shards": 3, "optimizer": {"kind": "adam", "learning_rate": 0.001}}
EVALUATED = {**TRAINING, "evaluation": {"metric": "ndcg@5"}}
WEAK = {"weight": 0.001, "neighbours": 2}


def world(path, rows=ROWS, **more):
    """A dataset whose users lack one item of their last pair, which is in the validation part."""
    known = [[item for item in row if item != row[-1]] for row in rows]
    validation = [[row[-1]] if user % 3 else [] for user, row in enumerate(rows)]
    return dataset_from_lists(path, known, validation=validation, width=WIDTH, **more)


class Heard(Report):
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.terms = [], []

    def say(self, text):
        self.said.append(text)

    def tried(self, text):
        self.terms.append(text)


def found(model, data, users=30):
    """What a search finds for the model, and the choices of which it told."""
    tried = []
    (name,) = model.network.outputs
    asked = "ndcg@5", True, users, tried.append, lambda: None
    return *search(model.network, name, data, *asked), tried


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return world(tmp_path_factory.mktemp("fitted") / "data")


@pytest.fixture(scope="module")
def heard():
    return Heard()


@pytest.fixture(scope="module")
def fitted(data, heard, tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "run"
    return train(tied_near(**WEAK, fit=True), EVALUATED, data, path, device="cpu", report=heard)


def test_the_best_of_what_was_tried_is_kept(data, tmp_path):
    # Of 60 users with something to find, 30 choose, and 30 judge.
    model = train(tied_near(), TRAINING, data, tmp_path / "run", device="cpu")
    term, before, best, tried = found(model, data)
    chosen = max(tried, key=lambda choice: choice.mean)
    assert model.network.spec.outputs[0].neighbourhood == term == best.term == chosen.term
    assert tried[0].term is before.term is None
    assert {choice.term.neighbours for choice in tried[1:]} == {25, 10, 3}
    assert {choice.term.popularity for choice in tried[1:]} == {0.4, 0.2, 0}
    assert {choice.term.floor for choice in tried[1:]} == {0.01, 0.002}
    assert best.mean > before.mean
    for each, own in ((model, (chosen, best)), (Model.load(tmp_path / "run"), (tried[0], before))):
        whole = each.evaluate(data, "validation", ks=[5])["ndcg@5"]
        assert sum(choice.mean for choice in own) / 2 == pytest.approx(whole, abs=1e-7)
        assert own[0].mean != own[1].mean


@pytest.mark.parametrize("term", [{}, {"neighbours": 4}])
def test_what_the_run_has_stays_unless_others_gain_by_more_than_chance(term, tmp_path):
    alone = [[user % WIDTH, (user * 7 + 1) % WIDTH] for user in range(60)]
    data = world(tmp_path / "data", alone)
    model = train(tied_near(**term), TRAINING, data, tmp_path / "run", device="cpu")
    earlier = model.fingerprint(), model.network.spec.outputs[0].neighbourhood
    kept, before, best, _ = found(model, data, 99)
    assert kept == earlier[1] == before.term
    assert best.mean <= before.mean
    assert (model.fingerprint(), model.network.spec.outputs[0].neighbourhood) == earlier


def along_a_sequence(**output):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": 3, "activation": "linear", "bias": False},
            {"name": "state", "kind": "recurrent", "cell": "gru", "units": 3},
            {"name": "out", "kind": "output", "field": "items", "predict": "next", **output},
        ]
    }


@pytest.mark.parametrize(("steps", "wanted"), [(9, "use"), (2, "forward")])
def test_along_a_sequence_all_orders_are_tried(steps, wanted, tmp_path):
    # Along a ring; without order, the item before the first is as near as the one after the newest. If a
    # user has a single item, only a term that looks forward knows on which side the next one is.
    rows = [[(user * 7 + step) % WIDTH for step in range(steps + user // WIDTH % 2)] for user in range(90)]
    data = world(tmp_path / "data", rows, sequence=True)
    _, _, best, tried = found(train(along_a_sequence(), TRAINING, data, tmp_path / "run"), data)
    known = dict.fromkeys((choice.term.order, choice.term.neighbours) for choice in tried[1:])
    assert [*known] == [(order, number) for order in ("ignore", "use", "forward") for number in (25, 10, 3)]
    assert best.term.order == wanted


def test_a_training_ends_with_the_term_of_a_search(fitted, heard, data, tmp_path):
    plain = train(tied_near(**WEAK), EVALUATED, data, tmp_path / "plain", device="cpu")
    before = plain.fingerprint()
    term, _, _, tried = found(plain, data)
    assert tried[1].term.weight == WEAK["weight"]
    assert fitted.fingerprint() == plain.fingerprint() != before
    assert fitted.network.spec == plain.network.spec
    assert len(heard.terms) == len(tried)
    assert heard.terms[-1].endswith(str(max(tried, key=lambda choice: choice.mean)))
    assert [sentence for sentence in heard.said if words_of(term) in sentence]


def test_the_run_has_both_documents_and_every_reader_takes_the_fitted_one(fitted, data, tmp_path):
    asked = json.loads((fitted.run.path / "network.json").read_text())["layers"][-1]["neighbourhood"]
    chosen = json.loads((fitted.run.path / "network-fitted.json").read_text())["layers"][-1]["neighbourhood"]
    assert (asked["weight"], asked["neighbours"], asked["fit"]) == (0.001, 2, True)
    assert chosen["weight"] > 0.001
    assert not chosen["fit"]
    loaded = Model.load(fitted.run.path)
    assert loaded.run.network == fitted.run.network == fitted.network.spec
    assert loaded.fingerprint() == fitted.fingerprint()
    assert loaded.recommend([0, 4], k=5) == fitted.recommend([0, 4], k=5)
    same = train(fitted.run.path / "network-fitted.json", EVALUATED, data, tmp_path / "again", device="cpu")
    assert same.fingerprint() == fitted.fingerprint()
    assert not (tmp_path / "again" / "network-fitted.json").exists()


def test_a_training_that_goes_on_after_its_end_fits_the_same(fitted, data, tmp_path):
    path = tmp_path / "run"
    asked = tied_near(**WEAK, fit=True), EVALUATED, data, path
    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        train(*asked, device="cpu", interrupted=lambda: len(heard.terms) > 2, report=heard)
    assert len(heard.terms) == 3
    assert not (path / "model").exists()
    log = (path / "log.jsonl").read_bytes()
    for _ in range(2):
        assert train(*asked, device="cpu", resume=True).fingerprint() == fitted.fingerprint()
        assert (path / "log.jsonl").read_bytes() == log


def trained_by_a_group(data, out):
    model = train(tied_near(**WEAK, fit=True), EVALUATED, data, out, device="cpu")
    return model.fingerprint()


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_fits_the_same_term(size, fitted, data, groups, tmp_path):
    made = groups(size)(trained_by_a_group, str(data.path), str(tmp_path / "run"))
    assert made == [fitted.fingerprint()] * size
    assert Model.load(tmp_path / "run").run.network == fitted.run.network


def test_a_term_that_cannot_be_fitted_stays_and_the_report_says_so(data, tmp_path):
    heard, training = Heard(), {**TRAINING, "evaluation": {"metric": "coverage@5"}}
    model = train(tied_near(**WEAK, fit=True), training, data, tmp_path / "run", device="cpu", report=heard)
    assert len(heard.said) == 1
    assert model.run.network.outputs[0].neighbourhood.weight == 0.001
    assert not heard.terms
