"""Evaluation: numbers that a person can work out, for networks whose scores are set by hand, and for
popularity.
"""

import math

import pytest
import torch

from widenet.baselines.evaluate import evaluate
from widenet.baselines.methods import evaluate_popularity
from widenet.data.lists import dataset_from_lists
from widenet.errors import FitError, OptionError
from widenet.model.build import build
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.plan.tiles import as_slice
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

ROWS = [[0, 1], [2], [], [0, 4]]
HELDOUT = [[2], [0, 3], [4], []]
SCORES = [5.0, 4.0, 3.0, 2.0, 1.0]
"""Everybody's scores: unit 0 is the best, unit 4 the last."""


def fixed(data, *scores):
    """A network that gives everybody the same scores: an output's weights are zero, its biases the scores."""
    layers = [{"name": "in", "kind": "input", "field": "items"}, {"name": "mid", "units": 2}]
    linear = {"kind": "output", "field": "items", "source": "mid", "activation": "linear", "loss": "l2"}
    outputs = dict(zip(("first", "second"), scores, strict=False))
    layers += [{"name": name, **linear} for name in outputs]
    training = TrainingSpec.of({"shards": 2})
    network = build(bind(NetworkSpec.of({"layers": layers}), training, data.fields), Exchange(2), counts={})
    for name, own in outputs.items():
        for shard, part in network.wide[f"{name} bias"].parts.items():
            network.wide[name].parts[shard].weight.zero_()
            part.weight.copy_(torch.tensor(own)[as_slice(network.wide[name].shards.units(shard))])
    return network


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", ROWS, heldout=HELDOUT, width=5)


def test_metrics_are_those_worked_out_by_hand(data):
    # Unseen units by score: user 0 is shown 2 3 (2 true), user 1 0 1 (0 true, 3 missed), user 2 0 1 (4
    # missed); user 3 has no truth.
    found = evaluate(fixed(data, SCORES), data, ks=[2])
    ideal = 1 + 1 / math.log2(3)
    assert found == pytest.approx(
        {
            "precision@2": (1 / 2 + 1 / 2 + 0) / 3,
            "recall@2": (1 + 1 / 2 + 0) / 3,
            "ndcg@2": (1 + 1 / ideal + 0) / 3,
            "map@2": (1 + 1 / 2 + 0) / 3,
            "mrr@2": 2 / 3,
            "hit_rate@2": 2 / 3,
            "coverage@2": 4 / 5,
            "popularity@2": (1 + 0 + 2 + 1 + 2 + 1) / (6 * 2),
            "num_examples": 3.0,
        }
    )


def test_an_output_is_chosen_by_name(data):
    network = fixed(data, SCORES, SCORES[::-1])
    assert evaluate(network, data, ks=[1], output="first") == evaluate(fixed(data, SCORES), data, ks=[1])
    assert evaluate(network, data, ks=[1], output="second")["recall@1"] == pytest.approx((0 + 0 + 1) / 3)
    with pytest.raises(FitError):
        evaluate(network, data, ks=[1])
    with pytest.raises(FitError):
        evaluate(network, data, ks=[1], output="third")


def test_other_parts_and_lengths_that_are_no_whole_numbers_are_refused(data):
    network = fixed(data, SCORES)
    for part in ("test", "train"):
        with pytest.raises(OptionError):
            evaluate(network, data, part)
        with pytest.raises(OptionError):
            evaluate_popularity(data, "items", part)
    for ks in ([0], [2, 2], [], 5, ["5"], [2.0]):
        with pytest.raises(OptionError):
            evaluate(network, data, ks=ks)


def test_what_was_set_aside_is_known_in_the_final_evaluation_and_not_before(tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0]], validation=[[1]], heldout=[[2]], width=5)
    network = fixed(data, SCORES)
    assert evaluate(network, data, "heldout", ks=[1])["recall@1"] == 1.0
    assert evaluate(network, data, "validation", ks=[1])["recall@1"] == 1.0
    assert evaluate(fixed(data, SCORES[::-1]), data, "validation", ks=[3])["recall@3"] == 0.0


def test_popularity_recommends_the_most_frequent_unseen_units_ties_to_the_lower(data):
    # Counts 2 1 1 0 1. Shown two: user 0 2 4 (2 true), user 1 0 1 (0 of 0, 3 true), user 2 0 1 (4 missed).
    found = evaluate_popularity(data, "items", ks=[2])
    assert found["recall@2"] == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert found["coverage@2"] == 4 / 5
    assert found["popularity@2"] == pytest.approx((1 + 1 + 2 + 1 + 2 + 1) / 12)
    assert evaluate_popularity(data, "items", ks=[100])["recall@100"] == 1.0
