"""`widenet dsstne encoder`."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.dsstne.files import sparse_set, write_netcdf
from widenet.dsstne.encoder import training_of
from widenet.dsstne.spec.settings import Settings
from widenet.runs import Model

CONFIG = {
    "Layers": [
        {"Name": "Input", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Name": "Hidden", "N": 8, "Activation": "Tanh"},
        {"Name": "Output", "Kind": "Output", "DataSet": "output", "N": "auto", "Activation": "Sigmoid"},
    ]
}
TRAINING = {"Epochs": 3, "Alpha": 0.5, "Lambda": 0, "Results": "found.nc"}
ROWS = [[1, 4, 5], [0, 1], [], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], [9]]


def write_data(path, flags=()):
    """Two Boolean data sets of the same rows in one file."""
    sets = [
        sparse_set(number, name, ROWS, sides=(16,), flags=flags)
        for number, name in enumerate(["input", "output"])
    ]
    attributes, dimensions, variables = ({**one, **other} for one, other in zip(*sets, strict=True))
    write_netcdf(path, {"datasets": np.uint32(2), **attributes}, dimensions, variables)


@pytest.fixture
def project(tmp_path, monkeypatch, widenet):
    monkeypatch.chdir(tmp_path)
    write_data("data.nc")
    Path("config.json").write_text(json.dumps(CONFIG), "utf-8")

    def run(**command):
        Path("file.cdl").write_text("// a command file\n" + json.dumps(command), "utf-8")
        return widenet("dsstne", "encoder", "file.cdl")

    return run


def test_it_trains_as_the_file_says_and_measures_what_it_trained(project):
    parameters = {**TRAINING, "Optimizer": "Nesterov", "MU": 0.7, "AlphaInterval": 2, "AlphaMultiplier": 0.25}
    ended = project(
        version=0.7,
        network="config.json",
        data="data.nc",
        command="train",
        RandomSeed=5,
        TrainingParameters=parameters,
    )
    assert (ended.status, len(ended.out.splitlines())) == (0, 4)
    training = Model.load("found.nc.run").run.training
    assert training.model_dump()["optimizer"] == {"kind": "nesterov", "learning_rate": 0.5, "momentum": 0.7}
    assert training.model_dump()["schedule"] == {"kind": "step", "every_epochs": 2, "factor": 0.25}
    assert (training.batch_size, training.epochs, training.seed, training.l2) == (1024, 4, 5, 0)
    ended = project(Network="found.nc", Data="data.nc", Command="Predict")
    assert ended.status == 0
    found = [[float(number) for number in line.split(",")] for line in ended.out.splitlines()]
    truth = expected(Model.load("found.nc.run"))
    np.testing.assert_allclose(found, truth, atol=5.1e-5)
    assert ended.out.splitlines()[0] == f"1,{found[0][1]:6.4f},{found[0][2]:6.4f},{found[0][3]:6.4f}"


@pytest.mark.parametrize(
    ("given", "epochs", "every"),
    [
        ({}, 20, None),
        ({"AlphaInterval": 0}, 20, None),
        ({"AlphaInterval": 3}, 12, 3),
        ({"Epochs": 21}, 40, None),
    ],
)
def test_a_training_lasts_for_whole_alpha_intervals(given, epochs, every):
    found = training_of(Settings({"Epochs": 10, **given}, "file.cdl", ["Epochs", "AlphaInterval"]))
    assert (found["epochs"], found.get("schedule", {}).get("every_epochs")) == (epochs, every)


def expected(model):
    """k, precision, recall and NDCG of every k, example by example, from what the run recommends."""
    table = []
    for k in range(1, 11):
        sums = np.zeros(3)
        for row in (row for row in ROWS if row):
            best = [
                int(found.item)
                for found in model.recommend([str(index) for index in row], k, exclude_seen=False)
            ]
            hits = [unit in row for unit in best]
            gain = sum(hit / np.log2(place + 2) for place, hit in enumerate(hits))
            sums += [
                sum(hits) / k,
                sum(hits) / len(row),
                gain / sum(1 / np.log2(place + 2) for place in range(len(row))),
            ]
        table.append([k, *(sums / len(ROWS))])
    return table


@pytest.mark.parametrize(("flags", "others"), [((), "use"), (("SparseIgnoreZero",), "ignore")])
def test_of_a_data_set_that_ignores_zeros_only_what_it_lists_counts(flags, others, project):
    write_data("data.nc", flags)
    assert (
        project(Network="config.json", Data="data.nc", Command="Train", TrainingParameters=TRAINING).status
        == 0
    )
    assert Model.load("found.nc.run").run.network.outputs[0].others == others


def test_checkpoints_have_the_name_and_the_interval_of_the_file(project):
    for number, more in enumerate(({}, {"CheckpointName": "kept", "CheckpointInterval": 2})):
        parameters = {"Epochs": 3, "AlphaInterval": 1, "Results": f"{number}.nc", **more}
        assert (
            project(
                Network="config.json", Data="data.nc", Command="Train", TrainingParameters=parameters
            ).status
            == 0
        )
    found = sorted(path.name for path in Path().glob("*[a-z][0-9].nc"))
    assert found == ["check1.nc", "check2.nc", "check3.nc", "kept2.nc"]
    parameters = {"Epochs": 3, "Results": "2.nc", "CheckpointName": "absent/kept"}
    ended = project(Network="config.json", Data="data.nc", Command="Train", TrainingParameters=parameters)
    assert (ended.status, ended.err.startswith("widenet: absent/kept: ")) == (2, True)
