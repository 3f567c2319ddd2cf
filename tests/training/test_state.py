"""The brake, step by step, and in trainings that are interrupted."""

import json

import numpy as np
import pytest

from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, train
from widenet.training.run_directory import RunDirectory
from widenet.training.state import Brake

NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 4, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid", "loss": "cross_entropy"},
    ]
}


def scripted(losses):
    """What became of each step: "made", "short" or "left out", and the brake; the formulas of DSSTNE's
    reference, written out.
    """
    mean, brake, expected = 0.0, 0, []
    for number, loss in enumerate(losses, 1):
        mean = 0.9 * mean + 0.1 * loss
        if number > 100 and loss > 2 * mean:
            brake = 25
        short = brake > 0
        brake -= short
        expected.append("left out" if brake == 24 else "short" if short else "made")
    return expected


def judged(losses):
    brake, number, found, rates = Brake(), 1, [], np.ones(len(losses) + 1)
    for loss in losses:
        if brake.leaves_out(loss):
            found.append("left out")
            continue
        brake.shorten(number, rates)
        found.append("short" if rates[number] < 1 else "made")
        number += 1
    return found, brake


@pytest.mark.parametrize(
    "leaps",
    [[], [50], [99], [100], [130], [130, 131], [130, 140], [130, 154], [130, 155], [130, 156], [101, 200]],
)
def test_a_leap_after_a_hundred_steps_leaves_one_out_and_makes_the_next_24_short(leaps):
    losses = [50.0 if position in leaps else 1.0 + 0.1 * (position % 3) for position in range(230)]
    found, brake = judged(losses)
    assert found == scripted(losses)
    assert brake.left_out == found.count("left out") == len([leap for leap in leaps if leap >= 100])
    assert len(brake.shortened) == found.count("short")


def test_short_steps_go_at_a_tenth_of_the_rate():
    rates = np.array([0.0, 1.0, 1.0, 0.5, 0.5])
    assert Brake().braked(rates.copy()).tolist() == rates.tolist()
    assert Brake(shortened=[2, 3]).braked(rates).tolist() == [0.0, 1.0, 0.1, 0.05, 0.5]
    brake = Brake(short=1)
    brake.shorten(4, rates)
    brake.shorten(1, rates)
    assert (rates.tolist(), brake.shortened) == ([0.0, 1.0, 0.1, 0.05, 0.05], [4])


@pytest.fixture(scope="module")
def leaping(tmp_path_factory):
    """One example in twelve has many more items than the others, so that its batch's loss leaps."""
    draw = np.random.default_rng(4)
    rows = [
        sorted(draw.choice(40, 30 if user % 12 == 11 else 2, replace=False).tolist()) for user in range(36)
    ]
    return dataset_from_lists(tmp_path_factory.mktemp("leaping") / "data", rows, width=40)


def settings(kind, **more):
    optimizer = {"kind": kind, "learning_rate": 0.1}
    return {
        "epochs": 5,
        "batch_size": 1,
        "shards": 2,
        "optimizer": optimizer,
        "brake": True,
        "l2": 0.001,
        **more,
    }


@pytest.mark.parametrize("kind", ["sgd", "momentum", "rmsprop"])
def test_a_braked_training_that_is_interrupted_ends_with_the_same_bits(kind, leaping, tmp_path):
    whole = train(NETWORK, settings(kind), leaping, tmp_path / "whole")
    state = RunDirectory.open(tmp_path / "whole")
    asked = iter([False] * 150 + [True] * 100)
    with pytest.raises(KeyboardInterrupt):
        train(NETWORK, settings(kind), leaping, tmp_path / "cut", interrupted=lambda: next(asked))
    assert Model.load(tmp_path / "cut").fingerprint() != whole.fingerprint()
    resumed = train(NETWORK, settings(kind), leaping, tmp_path / "cut", resume=True)
    assert resumed.fingerprint() == whole.fingerprint()
    facts = next(find() for find in state.candidates()).facts["state"]["brake"]
    assert facts["left_out"] >= 2
    assert len(facts["shortened"]) >= 24
    if kind == "sgd":
        unbraked = train(NETWORK, settings(kind, brake=False), leaping, tmp_path / "unbraked")
        assert unbraked.fingerprint() != whole.fingerprint()


def test_a_step_that_is_left_out_counts_for_no_schedule(leaping, tmp_path):
    train(NETWORK, settings("sgd", schedule={"kind": "inverse", "decay": 0.01}), leaping, tmp_path / "run")
    brake = next(find() for find in RunDirectory.open(tmp_path / "run").candidates()).facts["state"]["brake"]
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()[-1])
    made = 5 * 36 - brake["left_out"]
    assert brake["seen"] == 5 * 36 > made
    short = 0.1 if made in brake["shortened"] else 1.0
    assert last["learning_rate"] == pytest.approx(short * 0.1 / (1 + 0.01 * (made - 1)))
