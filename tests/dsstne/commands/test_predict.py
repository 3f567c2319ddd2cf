"""`widenet dsstne train` and `predict` in several processes: the files and words of one."""

import re
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from tests.cli.test_processes import ended
from tests.dsstne.commands.test_train import PREDICT, TRAIN, write_project
from tests.parallel.copied import command
from tests.parallel.workers import commanded

FLAGS = ["-b", "20", "-e", "10", "-lambda", "0.01"]
LISTED = [*PREDICT, "-f", "text", "-k", "10", "-p", ".9f"]


@pytest.fixture
def place(tmp_path, monkeypatch, widenet):
    """A DSSTNE project, trained and asked by one process."""
    monkeypatch.chdir(tmp_path)
    write_project(widenet)
    alone = widenet("dsstne", "train", *TRAIN, *FLAGS)
    assert widenet("dsstne", "predict", *LISTED).status == 0
    Path("none").write_text("u0\tm1,0.5\n", "utf-8")
    assert widenet("dsstne", "predict", *LISTED, "-f", "none", "-s", "halved").status == 0
    assert widenet("dsstne", "predict", *LISTED, "-l", "Output", "-s", "values").status == 0
    Path("gl.nc").rename("alone.nc")
    Path("gl.nc10.nc").rename("alone.nc10.nc")
    Path("gl.nc.run").rename("alone.nc.run")
    return tmp_path, alone


def numbers(path):
    with netCDF4.Dataset(path) as file:
        return {name: np.asarray(variable[:]) for name, variable in file.variables.items()}


def without_times(lines):
    return re.sub(r"elapsed time [\d.]+s", "", lines)


def test_two_processes_train_and_predict_what_one_does(place, groups):
    folder, alone = place
    status, out, err = ended(command(["dsstne", "train", *TRAIN, *FLAGS, "--processes", "2"]))
    assert (status, without_times(out)) == (0, without_times(alone.out)), err
    assert err.count("gl.nc: trained.") == 1
    for found, expected in (
        ("gl.nc", "alone.nc"),
        ("gl.nc10.nc", "alone.nc10.nc"),
    ):
        ours, theirs = numbers(found), numbers(expected)
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    for more, expected in (([], "recs"), (["-f", "none"], "halved"), (["-l", "Output"], "values")):
        line = ["dsstne", "predict", *LISTED, *more, "-s", "two"]
        first, second = groups(2)(commanded, line, folder)
        assert (*first[:2], first[2].count("two: 60 samples.")) == (0, "", 1), first
        assert second == (0, "", "")
        assert Path("two").read_bytes() == Path(expected).read_bytes()
    assert not list(folder.glob(".*"))
