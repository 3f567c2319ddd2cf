"""`widenet dsstne generateNetCDF`, `train` and `predict` in a row, as DSSTNE's sample of MovieLens does
it.
"""

import json
import os
import re
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from tests.movielens import SAMPLE
from widenet.runs import Model

ROOT = Path(__file__).parents[3]

CONFIG = {
    **SAMPLE,
    "Layers": [{**layer, "N": 16} if layer["Name"] == "Hidden" else layer for layer in SAMPLE["Layers"]],
}
TRAIN = ["-c", "config.json", "-i", "in.nc", "-o", "out.nc", "-n", "gl.nc"]
PREDICT = ["-d", "gl", "-i", "features_in", "-o", "features_out", "-n", "gl.nc", "-r", "text", "-s", "recs"]


@pytest.fixture
def project(tmp_path, monkeypatch, widenet):
    """A DSSTNE project of 60 users, as far as the training."""
    monkeypatch.chdir(tmp_path)
    write_project(widenet)
    return widenet


def write_project(widenet):
    draw = np.random.default_rng(3)
    rows = [draw.choice(30, 6, replace=False) for _ in range(60)]
    lines = [
        f"u{user}\t" + ":".join(f"m{movie},1100000000" for movie in row) for user, row in enumerate(rows)
    ]
    Path("text").write_text("\n".join(lines) + "\n", "utf-8")
    Path("config.json").write_text("// sample\n" + json.dumps(CONFIG), "utf-8")
    prepare(widenet, "text")


def prepare(widenet, text):
    for name in ("in", "out"):
        flags = f"-d gl_{name}put -o {name}.nc -f features_{name} -s samples -c".split()
        assert widenet("dsstne", "generateNetCDF", *flags, "-i", text).status == 0


def recommended(path="recs"):
    """By sample, items and scores of each line of a file, which is DSSTNE's to the byte."""
    found = {}
    for line in Path(path).read_text("utf-8").splitlines():
        sample, rest = line.split("\t")
        assert rest.endswith(":")
        found[sample] = [
            (item, float(score)) for item, score in (each.split(",") for each in rest[:-1].split(":"))
        ]
    return found


def test_a_training_ends_with_a_network_that_predicts_what_its_run_does(project):
    ended = project("dsstne", "train", *TRAIN, "-b", 20, "-e", 3, "-alpha", 0.5, "-lambda", 0, "-mu", 0.9)
    assert ended.status == 0
    assert [line.split(",")[0] for line in ended.out.splitlines()] == [
        f"NNNetwork::Train: Epoch {epoch}" for epoch in (1, 2, 3)
    ]
    assert all(
        "average regularization error 0.000000, elapsed time" in line for line in ended.out.splitlines()
    )
    training = Model.load("gl.nc.run").run.training
    assert (training.seed, training.shuffle, training.l2, training.optimizer.learning_rate) == (
        12134,
        False,
        0,
        0.5,
    )
    Path("none").write_text("", "utf-8")
    assert project("dsstne", "predict", *PREDICT, "-f", "none", "-k", 30, "-p", ".6f").status == 0
    found, model = recommended(), Model.load("gl.nc.run")
    items = Path("features_in").read_text("utf-8").splitlines()
    index_of = dict(line.split("\t") for line in items)
    for line in Path("text").read_text("utf-8").splitlines()[:5]:
        sample, rest = line.split("\t")
        listed = [index_of[each.split(",")[0]] for each in rest.split(":")]
        expected = [
            row for row in model.recommend(listed, 128, exclude_seen=False) if int(row.item) < len(items)
        ]
        assert [index_of[item] for item, _ in found[sample]] == [row.item for row in expected]
        assert [score for _, score in found[sample]] == pytest.approx(
            [row.score for row in expected], abs=1e-6
        )


def test_an_epoch_tells_what_its_weights_cost_beside_the_training_error(project):
    ended = project("dsstne", "train", *TRAIN, "-b", 20, "-e", 1, "-lambda", 0.01, "-lambda1", 0.003)
    network = Model.load("gl.nc.run").network
    matrices = [
        part.weight.double()
        for weight in network.wide.values()
        for part in weight.parts.values()
        if not weight.is_bias
    ]
    cost = sum(
        0.005 * float(weight.square().sum()) + 0.003 * float(weight.abs().sum()) for weight in matrices
    )
    found = {name: float(value) for name, value in re.findall(r"average (\w* ?)error ([\d.]+)", ended.out)}
    assert found["regularization "] == pytest.approx(cost, abs=1e-6)
    assert found[""] == pytest.approx(found["training "] + cost, abs=2e-6)


def test_the_network_is_left_every_ten_epochs(project):
    assert project("dsstne", "train", *TRAIN, "-b", 30, "-e", 20).status == 0
    assert sorted(path.name for path in Path().glob("gl.nc?*")) == ["gl.nc.run", "gl.nc10.nc", "gl.nc20.nc"]
    with (
        netCDF4.Dataset("gl.nc10.nc") as tenth,
        netCDF4.Dataset("gl.nc20.nc") as last,
        netCDF4.Dataset("gl.nc") as found,
    ):
        assert all(np.array_equal(last[name][:], found[name][:]) for name in found.variables)
        assert not any(np.array_equal(tenth[name][:], found[name][:]) for name in found.variables)


def test_a_finished_network_is_not_overwritten_and_a_training_cut_short_goes_on(project):
    assert project("dsstne", "train", *TRAIN, "-b", 20, "-e", 2).status == 0
    again = project("dsstne", "train", *TRAIN, "-b", 20, "-e", 2)
    assert (again.status, again.err.startswith("widenet: gl.nc: ")) == (2, True)
    whole = Path("gl.nc").read_bytes()
    Path("gl.nc").unlink()
    resumed = project("dsstne", "train", *TRAIN, "-b", 20, "-e", 2)
    assert (resumed.status, "gl.nc.run" in resumed.err) == (0, True)
    assert len(Path("gl.nc").read_bytes()) == len(whole)
    Path("gl.nc").unlink()
    shutil.rmtree("gl.nc.run/model")
    resumed = project("dsstne", "train", *TRAIN, "-b", 20, "-e", 2)
    assert (resumed.status, "gl.nc.run" in resumed.err) == (0, True)
    assert not list(Path().glob(".gl.nc.*"))


def test_a_filter_leaves_out_what_it_lists_and_small_values_multiply(project):
    assert project("dsstne", "train", *TRAIN, "-b", 20, "-e", 1).status == 0
    Path("none").write_text("", "utf-8")
    assert project("dsstne", "predict", *PREDICT, "-f", "none", "-k", 200, "-p", ".7f").status == 0
    plain = dict(recommended()["u0"])
    first, second, third, fourth, *_ = plain
    Path("filter").write_text(f"u0\t{first}:{second},1100000000:{third},0.5:{fourth},1:unknown,2\n", "utf-8")
    assert project("dsstne", "predict", *PREDICT, "-f", "filter", "-k", 200, "-p", ".7f").status == 0
    found = recommended()
    shown = dict(found["u0"])
    assert set(plain) - set(shown) == {first, second, fourth}
    assert shown[third] == pytest.approx(plain[third] / 2, abs=1e-6)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert len(found["u1"]) == len(plain) == 30


def test_the_values_of_a_layer_can_be_asked_for(project):
    assert project("dsstne", "train", *TRAIN, "-b", 20, "-e", 1).status == 0
    assert project("dsstne", "predict", *PREDICT, "-f", "text", "-l", "Hidden").status == 0
    lines = [line.split("\t") for line in Path("recs").read_text("utf-8").splitlines()]
    assert len(lines) == 60
    values = np.array([[float(value) for value in row.split(",")] for _, row in lines])
    assert values.shape == (60, 16)
    assert ((values > 0) & (values < 1)).all()
    wrong = project("dsstne", "predict", *PREDICT, "-f", "text", "-l", "Hiden")
    assert wrong.status == 2


def test_the_sample_of_movielens_runs_from_text_to_recommendations(tmp_path, monkeypatch, widenet):
    source = (
        Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data"))
        / "dsstne-movielens"
        / "movielens_input_1024.txt"
    )
    if not source.exists():
        pytest.skip(f"{source} is not there; WIDENET_DATA names the folder of the test data")
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(SAMPLE), "utf-8")
    prepare(widenet, source)
    ended = widenet("dsstne", "train", *TRAIN, "-b", 256, "-e", 10)
    errors = [float(line.split("training error ")[1].split(",")[0]) for line in ended.out.splitlines()]
    assert (ended.status, len(errors)) == (0, 10)
    assert errors == sorted(errors, reverse=True)
    flags = [*PREDICT[:-4], "-r", str(source), "-s", "recs", "-f", str(source), "-b", 256, "-k", 10]
    assert widenet("dsstne", "predict", *flags).status == 0
    found = recommended()
    assert len(found) == 1024
    assert {len(rows) for rows in found.values()} == {10}
