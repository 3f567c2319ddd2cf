"""A training without a training document sets a validation part aside, as `widenet.fit` does."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

import widenet
from tests.mistakes import mistake
from tests.runs.test_fitting import COLUMNS, USERS
from tests.trainings import After, Heard
from widenet.data.split import split as split_dataset
from widenet.errors import CheckpointError, OptionError
from widenet.training.run_directory import RunDirectory
from widenet.training.state import Silence

TIMES = [(7 * position) % 101 for position in range(len(COLUMNS["user"]))]


def trained(data, out, **options):
    usual = {"network": None, "training": None, "report": Silence()}
    return widenet.train(**{**usual, **options}, data=data, out=out, device="cpu")


def begun(data, out, **options):
    """The run of a training that was interrupted in its first step."""
    with pytest.raises(KeyboardInterrupt):
        trained(data, out, interrupted=After(1), **options)
    return RunDirectory.open(out)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def inside(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a dataset without a validation part, and an undisturbed run."""
    folder = tmp_path_factory.mktemp("cutting")
    data = widenet.ingest(COLUMNS, folder / "books")
    trained(data, folder / "run")
    return folder


@pytest.fixture(scope="module")
def books(place):
    return widenet.Dataset.open(place / "books")


@pytest.fixture(scope="module")
def fingerprint(place):
    return widenet.Model.load(place / "run", "cpu").fingerprint()


def test_the_part_is_that_of_a_split_to_the_byte(place, books, tmp_path):
    split = widenet.split(books, tmp_path / "split", validation=0.1)
    assert inside(place / "run" / "data") == inside(split.path)
    assert names(place) == ["books", "run"]
    assert json.loads((place / "run" / "validation.json").read_text()) == {
        "examples": books.digest, "field": "items", "share": 0.1,
    }  # fmt: skip
    training = json.loads((place / "run" / "training.json").read_text())
    assert (training["keep"], training["evaluation"]["stop_after"]) == ("best", 3)
    assert Path(json.loads((place / "run" / "machine.json").read_text())["data"]) == place / "run" / "data"


def of_group(data, out):
    """What a process of a group says and gives."""
    heard = Heard()
    return trained(data, out, report=heard).fingerprint(), heard.said


def test_every_number_of_processes_has_the_same_bits_and_one_cuts(groups, place, fingerprint, tmp_path):
    (first, said), (second, nothing) = groups(2)(of_group, place / "books", tmp_path / "run")
    assert (first, second) == (fingerprint, fingerprint)
    assert said
    assert nothing == []
    assert inside(tmp_path / "run" / "data") == inside(place / "run" / "data")
    assert names(tmp_path) == ["run"]


def test_an_interrupted_training_resumes_on_either_dataset_and_without_its_own(
    place, books, fingerprint, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        trained(books, tmp_path / "run", interrupted=After(20))
    shutil.copytree(tmp_path / "run", tmp_path / "second")
    before = inside(tmp_path / "run" / "data")
    assert trained(books, tmp_path / "run", resume=True).fingerprint() == fingerprint
    assert inside(tmp_path / "run" / "data") == before
    shutil.rmtree(tmp_path / "second" / "data")
    assert trained(books, tmp_path / "second", resume=True).fingerprint() == fingerprint
    assert inside(tmp_path / "second" / "data") == before
    assert names(tmp_path) == ["run", "second"]
    again = trained(place / "run" / "data", place / "run", resume=True)
    assert again.fingerprint() == fingerprint


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["in the cut", "before the run", "before a checkpoint"])
def test_what_a_kill_leaves_is_no_obstacle(moment, books, fingerprint, tmp_path, monkeypatch):
    def kill(*_, **__):
        raise Killed

    def half(dataset, out, **options):
        split_dataset(dataset, out.with_name(f".{out.name}.00000000.partial"), **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("widenet.training.run_path.remove", lambda _: None)  # SIGKILL
        if moment == "in the cut":
            patch.setattr("widenet.runs.cutting.split", half)
        elif moment == "before the run":
            patch.setattr("widenet.runs.training.begun", kill)
        else:
            patch.setattr("widenet.runs.training.build", kill)
        with pytest.raises(Killed):
            trained(books, tmp_path / "run")
    assert names(tmp_path) == ["run" if moment == "before a checkpoint" else ".run.unfinished"]
    assert trained(books, tmp_path / "run").fingerprint() == fingerprint
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run" / "data") == names(books.path)


@pytest.fixture
def killed(books, tmp_path, monkeypatch):
    """A run that was killed before its first checkpoint, with the dataset that was cut for it."""

    def kill(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("widenet.training.run_path.remove", lambda _: None)  # SIGKILL
        patch.setattr("widenet.runs.training.build", kill)
        with pytest.raises(Killed):
            trained(books, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("options", [{}, {"resume": True}])
def test_a_killed_run_leaves_its_dataset_to_a_training_on_it(options, killed):
    before = inside(killed / "data")
    with mistake(CheckpointError, place=killed):
        begun(killed / "data", killed, training={"epochs": 1})
    begun(killed / "data", killed, **options)
    assert inside(killed / "data") == before
    assert "validation.json" in names(killed)


def test_a_new_run_on_another_dataset_replaces_a_killed_one_with_its_dataset(killed, books, tmp_path):
    other = widenet.split(books, tmp_path / "other", heldout=0.2)
    begun(other, killed, training={"epochs": 1})
    assert {"data", "validation.json"}.isdisjoint(names(killed))


def test_a_dataset_at_the_path_of_a_run_is_left_alone(place, tmp_path):
    shutil.copytree(place / "books", tmp_path / "run" / "data")
    before = inside(tmp_path)
    for options in ({}, {"no_validation": True}, {"overwrite": True}):
        with mistake(CheckpointError):
            trained(tmp_path / "run" / "data", tmp_path / "run", **options)
        assert inside(tmp_path) == before


def test_all_items_are_trained_on_if_asked(place, books, tmp_path):
    run = begun(books, tmp_path / "whole", no_validation=True)
    assert (run.training.evaluation, run.training.keep) == (None, "last")
    assert "validation.json" not in names(run.path)
    parted = begun(place / "run" / "data", tmp_path / "parted", no_validation=True)
    assert parted.training.evaluation is None
    for words in ({"training": {"epochs": 1}}, {"training": None, "resume": True}):
        with mistake(OptionError, option="no_validation"):
            trained(books, tmp_path / "run", no_validation=True, **words)


def test_a_held_out_part_is_evaluated_on_either_dataset_without_a_warning(books, tmp_path):
    held = widenet.split(books, tmp_path / "held", heldout=0.2)
    model = trained(held, tmp_path / "run")
    small = widenet.quantize(tmp_path / "run", tmp_path / "small")
    assert model.run.dataset().field("items").parts == ("train", "validation", "heldout")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.evaluate(tmp_path / "run" / "data")
        found = model.evaluate(held)
        shutil.rmtree(tmp_path / "run" / "data")
        assert model.evaluate(held) == found
        small.evaluate(held)
    assert {"data", "validation.json"}.isdisjoint(names(tmp_path / "small"))


def test_by_times_and_along_a_sequence_the_last_item_is_set_aside(tmp_path):
    timed = widenet.ingest({**COLUMNS, "time": TIMES}, tmp_path / "timed", time="time", keep_times=True)
    run = begun(timed, tmp_path / "of timed")
    split = widenet.split(timed, tmp_path / "split", validation_last=1)
    assert inside(run.path / "data") == inside(split.path)
    listened = widenet.ingest({**COLUMNS, "time": TIMES}, tmp_path / "listened", time="time", sequence=True)
    run = begun(listened, tmp_path / "of listened")
    assert run.dataset().entry_counts("items", slice(None), "validation").tolist() == [1] * USERS


def test_few_items_give_a_quarter_or_nothing(tmp_path):
    users = [user for user in range(8) for _ in range(3)]
    few = {"user": users, "item": [user % 2 + 2 * (row % 3) for row, user in enumerate(users)]}
    run = begun(widenet.ingest(few, tmp_path / "few"), tmp_path / "of few")
    quarter = widenet.split(tmp_path / "few", tmp_path / "quarter", validation=0.25)
    assert inside(run.path / "data") == inside(quarter.path)
    one = widenet.ingest({"user": ["a", "b", "b"], "item": ["x", "y", "x"]}, tmp_path / "one")
    run = begun(one, tmp_path / "of one")
    assert run.training.evaluation is None
    assert "data" not in names(run.path)


def test_who_starts_from_a_run_or_names_a_training_sets_nothing_aside(place, books, tmp_path):
    begun(books, tmp_path / "later", start_from=place / "run")
    network = {
        "layers": [
            {"name": "history", "kind": "input", "field": "items"},
            {"name": "next", "kind": "output", "field": "items"},
        ]
    }
    begun(books, tmp_path / "own", network=network, training={"epochs": 1})
    assert [name for run in ("later", "own") for name in names(tmp_path / run) if name == "data"] == []
    run = begun(books, tmp_path / "half", network=network)
    assert run.dataset().field("items").parts == ("train", "validation")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"examples": 1}', '{"examples": "a", "field": "items", "share": 0.3}']
)
def test_a_damaged_note_is_refused(text, place, books, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    (tmp_path / "run" / "validation.json").write_text(text)
    with mistake(CheckpointError):
        trained(books, tmp_path / "run", resume=True)
