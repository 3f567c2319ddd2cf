"""A folder of runs, some with hostile names, and the pages that show it."""

import shutil
from contextlib import contextmanager

import pytest

from tests.browser import LACKS, chromium  # noqa: F401
from tests.serve.conftest import service
from tests.trainings import TIED, UNTIED, books, document
from widenet.runs import train
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import locked

EVIL = "<img src=x onerror=alert(1)>&\"' run"
TRAINING = document({"kind": "adam", "learning_rate": 0.05})


def pytest_ignore_collect(collection_path):
    """Modules that import what the extra installs are left out where it is missing."""
    return True if LACKS and collection_path.name.startswith("test_") else None


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with the dataset "data" and the runs "runs/untied" and "runs/deep/tied"; only to be read."""
    folder = tmp_path_factory.mktemp("trained")
    data = books(folder / "data", titles=[f"Book {index}" for index in range(30)] + [EVIL])
    (folder / "runs" / "deep").mkdir(parents=True)
    train(UNTIED, TRAINING, data, folder / "runs" / "untied")
    slower = {**TRAINING, "epochs": 4, "optimizer": {"kind": "adam", "learning_rate": 0.01}}
    train(TIED, slower, data, folder / "runs" / "deep" / "tied")
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of the runs that a test may change."""
    shutil.copytree(trained / "runs", tmp_path / "runs")
    return tmp_path / "runs"


@contextmanager
def training(path):
    """Turn a copy of a run into one that a process trains: unfinished, locked, after its first epoch."""
    shutil.rmtree(path / "model")
    run = RunDirectory.open(path)
    run.rewind_log(1)
    with locked(path):
        yield run


def pages(folder, *words):
    """The pages of a folder on a free port."""
    return service(folder, *words, command="ui")


@pytest.fixture(scope="session")
def shown(trained):
    """The pages of the trained runs."""
    with pages(trained / "runs") as running:
        yield running
