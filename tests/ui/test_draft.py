"""Documents that somebody writes: mistakes in widenet's own words, the plan, and which datasets there are."""

import json
import shutil

import pytest

from tests.trainings import UNTIED
from widenet.data.dataset import Dataset
from widenet.errors import WidenetError
from widenet.plan.job import Job
from widenet.plan.memory import memory
from widenet.serve.messages import RefusedError
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.ui.draft import Draft, check, datasets, default_texts
from widenet.ui.known_runs import KnownRuns

RIGHT = {"name": "mine", "data": "", "network": json.dumps(UNTIED), "training": "{}", "processes": 2}


@pytest.fixture(scope="module")
def dataset(trained):
    return Dataset.open(trained / "data")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("network", "{", "network.json: line 1, column 2"),
        ("network", '{"layers": [{"nam": 1}]}', "network.json: layers[0].nam is not a known field. Did you"),
        ("training", '{"epochs": "ten"}', "training.json: epochs must be a whole number"),
        ("training", "[" * 100_000, "training.json: lists and objects are nested too deeply"),
    ],
)
def test_each_document_has_its_own_mistake(name, text, sentence, dataset):
    checked = check(Draft.of({**RIGHT, name: text}), dataset)
    assert list(checked.mistakes) == [name]
    assert checked.mistakes[name].startswith(sentence)
    assert checked.job is None


def test_documents_that_do_not_go_with_the_data_are_refused_as_a_training_refuses_them(dataset):
    stranger = json.dumps(UNTIED).replace('"items"', '"films"')
    with pytest.raises(WidenetError) as refused:
        check_training(NetworkSpec.parse(stranger), TrainingSpec.of({}), dataset)
    assert check(Draft.of({**RIGHT, "network": stranger}), dataset).mistakes == {"": str(refused.value)}
    many = check(Draft.of({**RIGHT, "processes": 9, "training": '{"shards": 4}'}), dataset)
    assert "must be from 1 to 4" in many.mistakes[""]


def test_the_plan_is_that_of_the_documents(dataset):
    checked = check(Draft.of(RIGHT), dataset)
    layout = check_training(NetworkSpec.of(UNTIED), TrainingSpec.of({}), dataset)
    manifest = dataset.manifest
    job = Job.of(layout, manifest.entries_per_example, manifest.num_examples, num_processes=2)
    assert checked.mistakes == {}
    assert memory(checked.job).weights == memory(job).weights
    assert (checked.job.num_processes, checked.num_examples) == (2, manifest.num_examples)


def test_default_documents_are_the_usual_ones_in_few_lines(dataset):
    from widenet.runs.documents import documents

    texts = default_texts(dataset)
    usual = documents(None, None, dataset)
    assert (NetworkSpec.parse(texts["network"]), TrainingSpec.parse(texts["training"])) == usual
    assert len(texts["training"]) < len(usual[1].to_json()) / 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 1},
        {"data": None},
        {"network": {}},
        {"processes": True},
        {"processes": 0},
        {"processes": 1e3},
    ],
)
def test_a_draft_of_other_types_is_refused(wrong):
    with pytest.raises(RefusedError):
        Draft.of({**RIGHT, **wrong})


def test_the_datasets_of_runs_a_named_one_and_those_of_a_folder_are_offered(trained, tmp_path):
    known = KnownRuns(trained / "runs").look()
    own = {str((trained / "data").resolve()): "data"}
    assert datasets(known, None, None) == own
    shutil.copytree(trained / "data", tmp_path / "all" / "books")
    shutil.copytree(trained / "data", tmp_path / "all" / "by" / "year")
    shutil.copytree(trained / "data", tmp_path / "all" / "far" / "too" / "deep")
    found = datasets(known, tmp_path / "all" / "books", tmp_path / "all")
    assert list(found.values()) == ["books", "data", "year"]
    assert found.keys() >= own.keys()
