"""Pruned runs: the model of the training that made the zeros, in fewer bytes, for every use of a run."""

import json
import shutil

import numpy as np
import pytest
import torch

import widenet
from tests.runs.test_quantizing import LAYERS, LIKED, USERS, WIDTH
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, OptionError
from widenet.model.part import Part
from widenet.model.pruned_part import PrunedPart
from widenet.plan.pruning import pruned_bytes
from widenet.report.listing import list_runs
from widenet.runs.made_of import num_bytes
from widenet.training.run_directory import RunDirectory

KEPT = 6
TRAINING = {
    "epochs": 20,
    "batch_size": 30,
    "shards": 4,
    "optimizer": {"kind": "adam", "learning_rate": 0.02},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    liked = [sorted(set(row)) for row in LIKED]
    data = dataset_from_lists(
        folder / "data", [row[:-2] for row in liked], heldout=[row[-2:] for row in liked], width=WIDTH
    )
    for name, layers in LAYERS.items():
        layers = [{**layers[0]}, {**layers[1], "units": 300}, *layers[2:]]
        training = {**TRAINING, "pruning": {"nonzeros": KEPT}}
        widenet.train({"layers": layers}, training, data, folder / name)
        widenet.prune(folder / name, folder / f"{name} small")
    return folder


@pytest.fixture(params=LAYERS)
def both(request, place):
    """A trained run and what is made of it."""
    names = request.param, f"{request.param} small"
    return [widenet.Model.load(place / name, device="cpu") for name in names]


def rows_of(model, name):
    return torch.cat([block for _, block in model.network.rows(name)])


def test_it_is_the_trained_model(both, place):
    trained, small = both
    assert small.fingerprint() == trained.fingerprint() == small.facts["fingerprint"]
    for name, wide in small.network.wide.items():
        assert wide.is_pruned != wide.is_bias
        assert torch.equal(rows_of(small, name), rows_of(trained, name))
    headers = num_bytes(place / f"{trained.run.path.name} small") - pruned_bytes(trained.network.layout)
    assert 0 < headers < 256 * len(small.network.wide) * TRAINING["shards"]
    before, after = (
        np.concatenate([block.scores for block in model.predict(place / "data", k=9)]) for model in both
    )
    assert after == pytest.approx(before, rel=1e-4)


def test_the_best_epoch_is_one_after_pruning_has_ended(tmp_path):
    """Vectors with all their numbers rank better here, and count neither as best nor as waiting."""
    liked = [sorted(set(row)) for row in LIKED]
    data = dataset_from_lists(
        tmp_path / "data", [row[:-2] for row in liked], validation=[row[-2:] for row in liked], width=WIDTH
    )
    evaluation = {"metric": "ndcg@5", "stop_after": 1}
    training = {**TRAINING, "epochs": 8, "evaluation": evaluation, "keep": "best", "pruning": {"nonzeros": 3}}
    model = widenet.train({"layers": LAYERS["plain"]}, training, data, tmp_path / "run")
    values = [json.loads(line)["ndcg@5"] for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert max(values) > max(values[5:])
    assert model.facts["best_epoch"] == 6 + values[5:].index(max(values[5:]))
    assert (rows_of(model, "mid/in") != 0).sum(dim=1).max() == 3
    small = widenet.prune(tmp_path / "run", tmp_path / "small")
    assert small.fingerprint() == model.fingerprint()
    assert (small.facts["made_of"], small.facts["nonzeros"]) == (str(tmp_path / "run"), 3)
    widenet.prune(tmp_path / "run", tmp_path / "smaller", 2)
    assert {run.name: (run.form, run.value) for run in list_runs(tmp_path).runs} == {
        "run": (None, max(values[5:])),
        "small": ("pruned to 3 numbers a vector", max(values[5:])),
        "smaller": ("pruned to 2 numbers a vector", None),
    }


def test_every_use_of_a_run_takes_it(both, place):
    trained, small = both
    basket = ["0", "5", "10"]
    found = small.recommend(basket, 4)
    assert [row.item for row in found] == [row.item for row in trained.recommend(basket, 4)]
    assert small.similar("5", 3)[0].item == trained.similar("5", 3)[0].item
    blocks = [*small.predict(place / "data", k=3)]
    assert sum(len(block.units) for block in blocks) == 3 * USERS


def test_its_scores_are_those_of_float64(place):
    small = widenet.Model.load(place / "tied small")
    vectors = rows_of(small, "mid/in").double()
    cosine = torch.nn.functional.cosine_similarity(vectors[[0, 5, 10]].sum(dim=0), vectors, dim=1)
    expected = torch.softmax(cosine / 0.1 + rows_of(small, "out bias")[:, 0].double(), dim=0)
    for row in small.recommend(["0", "5", "10"], 7):
        assert row.score == pytest.approx(float(expected[int(row.item)]), rel=1e-4)


def test_a_trained_run_is_pruned_afterwards_too(place, tmp_path):
    small = widenet.prune(place / "tied", tmp_path / "small", 2)
    rows, before = (rows_of(model, "mid/in") for model in (small, widenet.Model.load(place / "tied")))
    least = before.abs().topk(2).values[:, 1:]
    assert torch.equal(rows, torch.where(before.abs() >= least, before, 0.0))


def scores(folder, name):
    model = widenet.Model.load(folder / name)
    blocks = [*model.predict(folder / "data", k=7)]
    return model.fingerprint(), np.concatenate([block.scores for block in blocks]).tobytes()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_have_the_bits_of_one(size, name, place, groups):
    assert groups(size)(scores, place, f"{name} small") == [scores(place, f"{name} small")] * size


def test_two_numbers_in_one_place_are_refused(place, tmp_path):
    """Their digests are right, as those of a file that somebody has made."""
    model = widenet.Model.load(place / "plain small", device="cpu")
    model.network.wide["mid/in"].parts[1].column_RK[2, 4:] = 299
    shutil.copytree(place / "plain small", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/model")
    RunDirectory.open(tmp_path / "run").save_model("model", model.network, model.facts)
    with pytest.raises(CheckpointError, match="not all places are of a vector"):
        widenet.Model.load(tmp_path / "run", device="cpu")


@pytest.mark.parametrize("columns", [[0, 4, 300], [-1, 4, 5], [0, 5, 4], [0, 4, 4]])
def test_places_must_be_of_the_vector_and_ascend(columns):
    part = PrunedPart.of(Part(torch.randn(5, 300)), 3)
    assert part.is_sound
    part.column_RK[2] = torch.tensor(columns, dtype=torch.int16)
    assert not part.is_sound


def test_an_answer_does_not_depend_on_what_came_with_it(both):
    _, small = both
    baskets = [[str(user % WIDTH), str(user * 7 % WIDTH)] for user in range(70)]
    together = small.recommend(baskets, 5)
    assert together[33] == small.recommend([baskets[33]], 5)[0]


def test_it_takes_six_bytes_for_each_number_that_stays(place):
    dense, small = num_bytes(place / "tied"), num_bytes(place / "tied small")
    assert dense - small == pytest.approx(WIDTH * (4 * 300 - 6 * KEPT), rel=0.03)


def test_wrong_uses_are_refused(place, tmp_path):
    with pytest.raises(OptionError, match=r"is pruned already\. Use it as it is"):
        widenet.prune(place / "plain small", tmp_path / "again")
    with pytest.raises(OptionError, match=r"is pruned\. Use it as it is"):
        widenet.quantize(place / "plain small", tmp_path / "again")
    with pytest.raises(OptionError, match=r"has no vectors of more than 300 numbers"):
        widenet.prune(place / "plain", tmp_path / "again", 300)
    with pytest.raises(OptionError, match="must be at least 1; got 0"):
        widenet.prune(place / "plain", tmp_path / "again", 0)
    with pytest.raises(CheckpointError, match="exists already"):
        widenet.prune(place / "plain", place / "tied")
    with pytest.raises(CheckpointError, match="pruned weights, which are not trained further"):
        widenet.train(None, None, place / "data", tmp_path / "more", start_from=place / "plain small")
    with pytest.raises(OptionError, match="whose weights are pruned; got 'cuda'"):
        widenet.Model.load(place / "plain small", device="cuda")
    assert not (tmp_path / "again").exists()


def test_a_dataset_in_a_run_is_not_replaced(place, tmp_path):
    shutil.copytree(place / "plain small", tmp_path / "small")
    shutil.copytree(place / "data", tmp_path / "small/data")
    with pytest.raises(CheckpointError, match="small holds a dataset, which would go with it"):
        widenet.prune(place / "plain", tmp_path / "small", overwrite=True)
    assert (tmp_path / "small/data/dataset.json").exists()


def test_a_run_that_was_not_pruned_needs_the_number(place, tmp_path):
    data, layers = place / "data", {"layers": LAYERS["plain"]}
    widenet.train(layers, {**TRAINING, "epochs": 1}, data, tmp_path / "dense")
    with pytest.raises(OptionError, match=r"`nonzeros` is missing: .* was not trained with"):
        widenet.prune(tmp_path / "dense", tmp_path / "again")
    widenet.quantize(tmp_path / "dense", tmp_path / "small")
    with pytest.raises(OptionError, match=r"is in 8 bits\. Use it as it is"):
        widenet.prune(tmp_path / "small", tmp_path / "again", 3)


def test_an_earlier_version_asks_for_a_newer_one(place, monkeypatch):
    monkeypatch.setattr("widenet.checkpoint.FORMAT_VERSION", 3)
    with pytest.raises(CheckpointError, match="Use a newer widenet"):
        widenet.Model.load(place / "plain small")
