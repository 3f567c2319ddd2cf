"""Replacing a run: the earlier one is lost only when the new one has a checkpoint."""

import errno
import os
import shutil
from contextlib import contextmanager, suppress

import pytest

from tests.mistakes import mistake
from tests.training.test_run_directory import NETWORK, begun
from tests.trainings import SETTINGS, books
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, OptionError
from widenet.plan.binding import bind
from widenet.runs import train
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import check, hidden

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


def with_data(path, data):
    """A run without weights that holds its dataset, as that of `fit` before its first checkpoint."""
    begun(path, OLD, data)
    (path / "validation.json").write_text("cut")
    shutil.copytree(data.path, path / "data")
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_earlier_run_waits_until_the_new_one_has_a_checkpoint(tmp_path, data, run):
    before = inside(run.path)
    for _ in range(2):  # the first ends without one
        with replaced(run.path, data) as new:
            assert new.training == NEW
            assert inside(tmp_path / ".run.replaced") == before
    checkpointed(new)
    assert names(tmp_path) == ["data", "run"]
    assert RunDirectory.open(run.path).training == NEW


@pytest.mark.parametrize(("is_whole", "fails"), [(True, False), (True, True), (False, True)])
def test_what_fails_brings_the_earlier_run_back(is_whole, fails, tmp_path, data, run):
    before = inside(run.path)
    with suppress(ZeroDivisionError), replaced(run.path, data, is_whole=is_whole) as new:
        if fails:
            raise ZeroDivisionError
        (new.path / "model").mkdir(parents=True)
    assert names(tmp_path) == ["data", "run"]
    assert (inside(run.path) == before) == fails


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
                outcomes.append((path / "checkpoints" / SECOND_EPOCH).exists())
        is_new = (path / "checkpoints" / SECOND_EPOCH).exists()
        assert is_new or before in (inside(path), inside(folder / ".run.replaced"))
        with replaced(path, data) as new:
            checkpointed(new)
        assert names(folder) == ["run"]
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes)


@pytest.fixture
def waiting(tmp_path, data, run):
    """A folder whose run waits for a checkpoint of its successor, which was killed and has a dataset."""
    run.path.rename(tmp_path / "earlier")
    with_data(run.path, data)
    (tmp_path / "earlier").rename(tmp_path / ".run.replaced")
    return tmp_path


@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_run_that_waits_for_its_successor_is_replaced_only_if_asked(is_begun, is_whole, waiting, data):
    path = waiting / "run"
    if not is_begun:  # the kill came between two renames
        shutil.rmtree(path)
    before = inside(waiting)
    layout = bind(NETWORK, NEW, data.fields)
    with mistake(CheckpointError, option="overwrite"):
        check(path, (), overwrite=False)
    with (
        mistake(CheckpointError, option="overwrite"),
        RunDirectory.begin(path, layout, data, is_whole=is_whole) as new,
    ):
        checkpointed(new)
    assert inside(waiting) == before
    with replaced(path, data) as new:
        checkpointed(new)
    assert names(waiting) == ["data", "run"]


@pytest.mark.parametrize("read", ["run/data", ".run.replaced"])
def test_a_new_run_replaces_neither_of_two_runs_that_it_reads(read, waiting):
    before = inside(waiting)
    with mistake(CheckpointError, option="out"):
        check(waiting / "run", [waiting / read], overwrite=True)
    assert inside(waiting) == before


@pytest.mark.parametrize("kind", ["with weights", "with data"])
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
    with pytest.raises(CheckpointError if error is OSError else error), replaced(path, data):
        pass
    assert (names(tmp_path), inside(path)) == (["data", "run"], before)


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


def test_a_training_replaces_a_run_with_the_bits_of_any_other(tmp_path):
    data = books(tmp_path / "books")
    network, training = SETTINGS["momentum"]
    expected = train(network, training, data, tmp_path / "run").fingerprint()
    other = {**training, "seed": 77}
    assert train(network, other, data, tmp_path / "run", overwrite=True).fingerprint() != expected
    again = train(network, training, data, tmp_path / "run", overwrite=True)
    assert (again.fingerprint(), names(tmp_path)) == (expected, ["books", "run"])
    with mistake(CheckpointError):
        train(network, training, data, tmp_path / "run", overwrite=True, start_from=tmp_path / "run")


def test_replacing_and_resuming_exclude_each_other_and_stores_are_left_alone(tmp_path):
    with mistake(OptionError):
        train(None, None, tmp_path, tmp_path / "run", resume=True, overwrite=True)
    with mistake(OptionError):
        train(None, None, tmp_path, "s3://shelf/run", overwrite=True)
