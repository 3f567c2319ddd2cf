"""Replacing a run: the earlier one is lost only when the new one has a checkpoint."""

import errno
import os
import shutil
from contextlib import contextmanager

import pytest

from tests.mistakes import mistake
from tests.training.test_run_directory import NETWORK, begun
from tests.trainings import SETTINGS, After, books
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, OptionError
from widenet.plan.binding import bind
from widenet.runs import train
from widenet.spec.training import TrainingSpec
from widenet.training import run_path
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import check, hidden, settle

OLD, NEW = TrainingSpec.of({"seed": 1, "shards": 1}), TrainingSpec.of({"seed": 2, "shards": 1})
SECOND_EPOCH = "epoch-00002-step-000000000"


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0, 1], [2]], titles=["A", "B", "C"])


@pytest.fixture
def run(tmp_path, data):
    """A finished run; the weights are a word."""
    return finished(tmp_path / "run", data)


def finished(path, data):
    run = begun(path, OLD, data)
    (path / "model").mkdir()
    (path / "model" / "manifest.json").write_text("weights")
    (path / "report.html").write_text("report")
    return run


def inside(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replaced(path, data, **options):
    return RunDirectory.begin(path, bind(NETWORK, NEW, data.fields), data, overwrite=True, **options)


def checkpointed(run):
    (run.path / "checkpoints" / SECOND_EPOCH).mkdir(parents=True)
    run.point_to(SECOND_EPOCH)


def killed(path, data):
    """Begin to replace a run, and end as by a kill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_path, "settle", lambda _: None)
        with replaced(path, data):
            pass


def with_data(path, data):
    """A run without weights that holds its dataset, as that of `fit` before its first checkpoint."""
    begun(path, OLD, data)
    (path / "validation.json").write_text("cut")
    shutil.copytree(data.path, path / "data")
    return path


def come_back(path):
    """Ask for a new run at a path, where the run that comes back is in the way."""
    with mistake(CheckpointError):
        check(path, (), overwrite=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_earlier_run_waits_until_the_new_one_has_a_checkpoint(tmp_path, data, run):
    before = inside(run.path)
    with replaced(run.path, data) as new:
        assert new.training == NEW
        assert inside(tmp_path / ".run.replaced") == before
        checkpointed(new)
        settle(run.path)
    assert names(tmp_path) == ["data", "run"]
    assert RunDirectory.open(run.path).training == NEW


def test_the_next_training_of_the_path_brings_a_waiting_run_back(tmp_path, data, run):
    before = inside(run.path)
    killed(run.path, data)
    with mistake(CheckpointError):
        begun(run.path, NEW, data)
    assert (names(tmp_path), inside(run.path)) == (["data", "run"], before)


def test_an_earlier_run_comes_back_if_the_new_one_ends_without_a_checkpoint(tmp_path, data, run):
    before = inside(run.path)
    with replaced(run.path, data) as new:
        (new.path / "best").mkdir()
        new.log({"epoch": 1})
    assert (names(tmp_path), inside(run.path)) == (["data", "run"], before)


class Killed(BaseException):
    pass


@contextmanager
def killed_after(changes):
    """Kill the process before its next change of the disk but so many."""
    left = changes

    def fatal(change):
        def changed(*paths, **more):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return change(*paths, **more)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "rmdir", "unlink"):
            patch.setattr(os, name, fatal(getattr(os, name)))
        yield


def test_a_kill_at_any_moment_leaves_the_earlier_run_or_a_checkpoint_of_the_new_one(tmp_path, data):
    """The process is killed before its first, second, ... change of the disk, which then stays as it is."""
    kills, outcomes = 0, []

    while kills == len(outcomes):
        folder = tmp_path / str(kills)
        path = finished(folder / "run", data).path
        before = inside(path)
        with killed_after(kills):
            kills += 1
            try:
                with replaced(path, data) as new:
                    checkpointed(new)
            except Killed:
                outcomes.append(None)
        come_back(path)
        is_new = RunDirectory.open(path).training == NEW
        assert (path / "checkpoints" / SECOND_EPOCH).exists() if is_new else inside(path) == before
        outcomes = [is_new if outcome is None else outcome for outcome in outcomes]
        with replaced(path, data) as new:
            checkpointed(new)
        assert names(folder) == ["run"]
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("kind", ["with weights", "with data", "whose data the new one reads"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_run_whose_successor_does_not_get_to_its_path_stays_with_its_data(
    kind, error, tmp_path, data, monkeypatch
):
    path = tmp_path / "run"
    finished(path, data) if kind == "with weights" else with_data(path, data)
    before, rename = inside(path), os.rename

    def refused(source, target):
        if str(source) == str(tmp_path / ".run.unfinished"):
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", refused)
    read = Dataset.open(path / "data") if kind == "whose data the new one reads" else data
    with pytest.raises(CheckpointError if error is OSError else error), replaced(path, read):
        pass
    assert (names(tmp_path), inside(path)) == (["data", "run"], before)


def test_a_kill_at_any_moment_leaves_the_data_of_a_run_which_the_new_one_reads(tmp_path, data):
    kills, ends = 0, 0

    while kills == ends:
        path = with_data(tmp_path / str(kills) / "run", data)
        read, before = Dataset.open(path / "data"), inside(path / "data")
        with killed_after(kills):
            kills += 1
            try:
                with replaced(path, read):
                    pass
            except Killed:
                ends += 1
        with hidden(path):
            assert (inside(path / "data"), (path / "validation.json").read_text()) == (before, "cut")
    assert ends > 3


def test_what_a_kill_has_left_and_the_system_keeps_is_no_part_of_the_next_run(tmp_path, run, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    for name in (".new.unfinished/data", "run/.best.0123.partial"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", refused)
    with mistake(CheckpointError, place=tmp_path / "new"), hidden(tmp_path / "new"):
        pass
    with mistake(CheckpointError, place=run.path), run.locked():
        pass


def test_a_run_that_cannot_come_back_says_so(tmp_path, run):
    run.path.rename(tmp_path / ".run.replaced")
    run.path.symlink_to(tmp_path / "nowhere")
    with mistake(CheckpointError, place=run.path):
        check(run.path, (), overwrite=False)


def test_a_run_that_replaced_another_comes_back_itself_although_a_kill_has_left_the_other(
    tmp_path, data, run
):
    shutil.copytree(run.path, tmp_path / ".run.replaced")
    (run.path / "report.html").write_text("of the successor")
    before = inside(run.path)
    with replaced(run.path, data):
        assert inside(tmp_path / ".run.replaced") == before
    assert (names(tmp_path), inside(run.path)) == (["data", "run"], before)


def test_who_reads_a_run_gets_the_earlier_one_if_its_replacing_was_killed(tmp_path, data, run):
    before = inside(run.path)
    killed(run.path, data)
    RunDirectory.open(run.path)
    assert (names(tmp_path), inside(run.path)) == (["data", "run"], before)
    run.path.rename(tmp_path / ".run.replaced")
    RunDirectory.open(run.path)
    assert inside(run.path) == before


def test_who_reads_a_run_that_is_being_replaced_disturbs_nothing(tmp_path, data, run):
    with replaced(run.path, data):
        before = names(tmp_path)
        with mistake(CheckpointError):
            RunDirectory.open(run.path).model()
        assert names(tmp_path) == before


def test_a_second_attempt_keeps_the_run_that_waits(tmp_path, data, run):
    before = inside(run.path)
    for _ in range(2):
        killed(run.path, data)
        assert inside(tmp_path / ".run.replaced") == before
    shutil.copytree(data.path, run.path / "data")
    with replaced(run.path, data) as new:
        assert inside(tmp_path / ".run.replaced") == before
        assert names(new.path) == names(run.path)
        assert "data" not in names(new.path)
    assert inside(run.path) == before


@pytest.mark.parametrize("names_there", [("data",), ("data", ".lock"), (".lock",), ()])
def test_a_dataset_at_the_path_of_a_waiting_run_is_never_removed_nor_is_the_run(
    names_there, tmp_path, data, run
):
    before, of_data = inside(run.path), inside(data.path)
    run.path.rename(tmp_path / ".run.replaced")
    run.path.mkdir()
    for name in names_there:
        shutil.copytree(data.path, run.path / name) if name == "data" else (run.path / name).touch()
    if "data" in names_there:
        come_back(run.path)
        settle(run.path)
        assert inside(run.path / "data") == of_data
        assert inside(tmp_path / ".run.replaced") == before
    else:
        come_back(run.path)
        assert (inside(run.path), names(tmp_path)) == (before, ["data", "run"])


def test_what_commands_have_put_into_a_run_is_replaced_with_it(run):
    for name in ("evaluations", "tensorboard"):
        (run.path / name).mkdir()
    check(run.path, (), overwrite=True)


def test_only_a_run_and_nothing_beside_it_is_replaced(tmp_path, data, run):
    def refused(needed=()):
        before = inside(tmp_path)
        with mistake(CheckpointError, place=run.path):
            check(run.path, needed, overwrite=True)
        assert inside(tmp_path) == before

    check(run.path, (), overwrite=True)
    check(tmp_path / "nothing", (), overwrite=True)
    refused([data.path, run.path / "data"])
    (run.path / "mine.txt").write_text("mine")
    refused()
    (run.path / "mine.txt").unlink()
    (run.path / "data").mkdir()
    (run.path / "data" / "mine.txt").write_text("mine")
    refused()
    shutil.rmtree(run.path / "data")
    with run.locked():
        refused()
    (run.path / "fields.json").unlink()
    refused()
    shutil.rmtree(run.path)
    run.path.write_text("mine")
    refused()


def test_a_stranger_at_the_path_of_a_waiting_run_stays(tmp_path, run):
    run.path.rename(tmp_path / ".run.replaced")
    run.path.mkdir()
    (run.path / "network.json").write_text("mine")
    come_back(run.path)
    assert names(run.path) == ["network.json"]
    assert names(tmp_path) == [".run.replaced", "data", "run"]


def test_a_training_replaces_a_run_with_the_bits_of_any_other(tmp_path):
    data = books(tmp_path / "books")
    network, training = SETTINGS["momentum"]
    expected = train(network, training, data, tmp_path / "run").fingerprint()
    other = {**training, "seed": 77}
    assert train(network, other, data, tmp_path / "run", overwrite=True).fingerprint() != expected
    again = train(network, training, data, tmp_path / "run", overwrite=True)
    assert (again.fingerprint(), names(tmp_path)) == (expected, ["books", "run"])
    with pytest.raises(KeyboardInterrupt):
        train(network, other, data, tmp_path / "run", overwrite=True, interrupted=After(1))
    assert RunDirectory.open(tmp_path / "run").training.seed == 77
    with mistake(CheckpointError):
        train(network, training, data, tmp_path / "run", overwrite=True, start_from=tmp_path / "run")


@pytest.mark.parametrize("has_documents", [True, False])
def test_a_resumed_training_goes_on_with_the_run_that_came_back(has_documents, tmp_path):
    data = books(tmp_path / "books")
    network, training = SETTINGS["momentum"]
    expected = train(network, training, data, tmp_path / "whole").fingerprint()
    with pytest.raises(KeyboardInterrupt):
        train(network, training, data, tmp_path / "run", interrupted=After(9))
    killed(tmp_path / "run", dataset_from_lists(tmp_path / "others", [[0, 1], [2]], titles=["A", "B", "C"]))
    documents = (network, training) if has_documents else (None, None)
    with pytest.warns(UserWarning, match=str(tmp_path / "run")):
        model = train(*documents, data, tmp_path / "run", resume=True)
    assert model.run.records()[0]["epoch"] == 1
    assert (model.fingerprint(), names(tmp_path)) == (expected, ["books", "others", "run", "whole"])


def test_replacing_and_resuming_exclude_each_other_and_stores_are_left_alone(tmp_path):
    with mistake(OptionError):
        train(None, None, tmp_path, tmp_path / "run", resume=True, overwrite=True)
    with mistake(OptionError):
        train(None, None, tmp_path, "s3://shelf/run", overwrite=True)
