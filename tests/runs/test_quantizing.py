"""Runs in 8 bits: what they keep of the trained one, and that every use of a run takes them."""

import shutil

import numpy as np
import pytest
import torch

import widenet
from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, OptionError

WIDTH, USERS = 60, 90
LIKED = [
    [(user % 5 + 5 * ((user // 5 + step * (1 + user % 3)) % 12)) for step in range(9)]
    for user in range(USERS)
]
LAYERS = {
    "plain": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 32, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items"},
    ],
    "tied": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 30, "activation": "linear", "bias": False},
        {
            "name": "out",
            "kind": "output",
            "field": "items",
            "cosine": {"temperature": 0.1},
            "weights": {"layer": "mid", "transposed": True},
        },
    ],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    liked = [sorted(set(row)) for row in LIKED]
    data = dataset_from_lists(
        folder / "data", [row[:-2] for row in liked], heldout=[row[-2:] for row in liked], width=WIDTH
    )
    for name, layers in LAYERS.items():
        training = {
            "epochs": 30,
            "batch_size": 30,
            "shards": 4,
            "optimizer": {"kind": "adam", "learning_rate": 0.02},
        }
        widenet.train({"layers": layers}, training, data, folder / name)
        widenet.quantize(folder / name, folder / f"{name} small")
    return folder


@pytest.fixture(params=LAYERS)
def both(request, place):
    """A trained run and what is made of it."""
    names = request.param, f"{request.param} small"
    return [widenet.Model.load(place / name, device="cpu") for name in names]


def test_it_ranks_almost_as_the_trained_run(both, place):
    whole, small = (model.evaluate(place / "data", ks=(5,))["ndcg@5"] for model in both)
    assert whole > 0.15  # by chance, a third of it
    assert small == pytest.approx(whole, rel=0.05)


def test_its_weights_are_the_rounded_ones(both):
    whole, small = (model.network for model in both)
    for name, wide in small.wide.items():
        rows, before = (torch.cat([block for _, block in one.rows(name)]) for one in (small, whole))
        assert wide.in_8_bits != wide.is_bias
        limit = 0 if wide.is_bias else before.abs().amax(dim=1, keepdim=True) / 253
        assert bool(((rows - before).abs() <= limit).all())


def test_every_use_of_a_run_takes_it(both, place):
    _, small = both
    basket = ["0", "5", "10"]
    found = small.recommend(basket, 4)
    assert len(found) == 4
    assert [row.item for row in found] == [row.item for row in both[0].recommend(basket, 4)]
    assert small.similar("5", 3)[0].item
    blocks = [*small.predict(place / "data", k=3)]
    assert sum(len(block.units) for block in blocks) == 3 * USERS
    assert small.fingerprint() == small.facts["fingerprint"] != both[0].fingerprint()
    assert small.run.dataset() is not None


def scores(folder, name):
    model = widenet.Model.load(folder / name)
    blocks = [*model.predict(folder / "data", k=7)]
    return model.fingerprint(), np.concatenate([block.scores for block in blocks]).tobytes()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_have_the_bits_of_one(size, name, place, groups):
    assert groups(size)(scores, place, f"{name} small") == [scores(place, f"{name} small")] * size


def test_wrong_uses_are_refused(place, tmp_path):
    with mistake(OptionError, place="plain small"):
        widenet.quantize(place / "plain small", tmp_path / "again")
    with mistake(CheckpointError, place="tied"):
        widenet.quantize(place / "plain", place / "tied")
    with mistake(CheckpointError, place="nowhere"):
        widenet.quantize(place / "nowhere", tmp_path / "again")
    with mistake(CheckpointError, place="plain small"):
        widenet.train(None, None, place / "data", tmp_path / "more", start_from=place / "plain small")
    with mistake(OptionError, place="plain"):
        widenet.quantize(place / "plain", place / "plain" / "small")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("resume", [{}, {"documents": True}])
def test_it_is_not_resumed(resume, place, tmp_path):
    small = shutil.copytree(place / "plain small", tmp_path / "small")
    run = widenet.Model.load(small).run
    documents = (run.network, run.training) if resume else (None, None)
    before = widenet.Model.load(small).fingerprint()
    with mistake(CheckpointError):
        widenet.train(*documents, place / "data", small, resume=True)
    assert widenet.Model.load(small).fingerprint() == before


def test_a_run_that_has_not_ended_is_refused(place, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        widenet.train(
            {"layers": LAYERS["plain"]},
            {"epochs": 2, "shards": 3},
            place / "data",
            tmp_path / "run",
            after_epoch=lambda *_: True,
        )
    with mistake(CheckpointError):
        widenet.quantize(tmp_path / "run", tmp_path / "small")


def test_it_replaces_an_earlier_run_and_what_a_killed_process_left(place, tmp_path):
    small = shutil.copytree(place / "tied", tmp_path / "small")
    (tmp_path / ".small.unfinished" / "vocabulary").mkdir(parents=True)
    made = widenet.quantize(place / "plain", small, overwrite=True)
    assert made.fingerprint() == widenet.Model.load(place / "plain small").fingerprint()
    assert made.facts["made_of"] == str(place / "plain")
    assert [*tmp_path.iterdir()] == [small]
    assert widenet.Model.load(small).fingerprint() == made.fingerprint()
