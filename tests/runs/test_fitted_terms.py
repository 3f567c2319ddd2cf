"""Neighbourhood terms that are fitted when training ends: against `fit_neighbourhood`, and trainings."""

import json

import pytest

import widenet
from tests.runs.test_neighbourhood import TRAINING, world
from tests.trainings import tied_near
from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, train
from widenet.runs.documents import documents
from widenet.runs.made_of import words_of
from widenet.training.state import Report

EVALUATED = {**TRAINING, "evaluation": {"metric": "ndcg@5"}}
WEAK = {"weight": 0.001, "neighbours": 2}


class Heard(Report):
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.terms = [], []

    def say(self, text):
        self.said.append(text)

    def tried(self, text):
        self.terms.append(text)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return world(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture(scope="module")
def heard():
    return Heard()


@pytest.fixture(scope="module")
def fitted(data, heard, tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "run"
    return train(tied_near(**WEAK, fit=True), EVALUATED, data, path, device="cpu", report=heard)


def test_the_term_is_that_of_a_search_after_the_training(fitted, heard, data, tmp_path):
    plain = train(tied_near(**WEAK), EVALUATED, data, tmp_path / "plain", device="cpu")
    tried = []
    searched = widenet.fit_neighbourhood(
        tmp_path / "plain", tmp_path / "near", metric="ndcg@5", report=tried.append
    )
    assert fitted.fingerprint() == searched.fingerprint() != plain.fingerprint()
    assert fitted.run.network == searched.run.network
    best = [max(tried[:number], key=lambda choice: choice.mean) for number in range(1, len(tried) + 1)]
    assert heard.terms == [
        f"{number} tried, the best so far: ndcg@5 {choice}" for number, choice in enumerate(best, 1)
    ]
    said = words_of(searched.run.network.outputs[0].neighbourhood)
    assert [sentence for sentence in heard.said if said in sentence]


def test_the_run_has_both_documents_and_every_reader_takes_the_fitted_one(fitted, data, tmp_path):
    asked = json.loads((fitted.run.path / "network.json").read_text())["layers"][-1]["neighbourhood"]
    found = json.loads((fitted.run.path / "network-fitted.json").read_text())["layers"][-1]["neighbourhood"]
    assert (asked["weight"], asked["neighbours"], asked["fit"]) == (0.001, 2, True)
    assert found["weight"] > 0.001
    assert not found["fit"]
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
    resumed = train(*asked, device="cpu", resume=True)
    assert resumed.fingerprint() == fitted.fingerprint()
    first = (path / "log.jsonl").read_bytes().splitlines()
    again = train(*asked, device="cpu", resume=True)
    assert again.fingerprint() == fitted.fingerprint()
    last = (path / "log.jsonl").read_bytes().splitlines()
    assert (last, len(last)) == (first, EVALUATED["epochs"])


def trained_by_a_group(data, out):
    model = train(tied_near(**WEAK, fit=True), EVALUATED, data, out, device="cpu")
    return model.fingerprint()


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_fits_the_same_term(size, fitted, data, groups, tmp_path):
    found = groups(size)(trained_by_a_group, str(data.path), str(tmp_path / "run"))
    assert found == [fitted.fingerprint()] * size
    assert Model.load(tmp_path / "run").run.network == fitted.run.network


@pytest.mark.parametrize("evaluation", [{}, {"evaluation": {"metric": "coverage@5"}}])
def test_a_term_that_cannot_be_fitted_stays_and_the_report_says_so(evaluation, data, tmp_path):
    training = {**TRAINING, **evaluation}
    heard = Heard()
    model = train(tied_near(**WEAK, fit=True), training, data, tmp_path / "run", device="cpu", report=heard)
    assert len(heard.said) == 1
    assert model.run.network.outputs[0].neighbourhood.weight == 0.001
    assert not heard.terms


def test_the_default_training_fits_its_term_and_knows_its_network_again(tmp_path):
    rows = [[(7 * user + 3 * step * step) % 50 for step in range(2 + user % 4)] for user in range(300)]
    data = dataset_from_lists(tmp_path / "data", [sorted({*row}) for row in rows], width=50)
    network, training = documents(None, None, data)
    assert network.outputs[0].neighbourhood.fit
    document = network.model_dump(mode="json")
    document["layers"][-1]["neighbourhood"] = {"weight": 2.0, "neighbours": 3}
    assert documents(document, None, data)[1] == training
    document["layers"][1]["units"] = 32
    document["layers"][1]["initializer"] = {"kind": "gaussian", "deviation": 0.1}
    assert documents(document, None, data)[1] != training
