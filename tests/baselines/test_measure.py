"""All baselines of an evaluation: their metrics, and the same in several processes."""

from itertools import pairwise

import numpy as np
import pytest

import widenet
from tests.baselines.conftest import HELDOUT, HISTORY, WIDTH
from widenet.baselines import measure
from widenet.baselines.evaluated_lists import evaluate_lists
from widenet.baselines.measure import measured
from widenet.baselines.methods import evaluate_popularity
from widenet.metrics.ranking import RankingMetrics

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "mid", "units": 3, "activation": "tanh"},
    {"name": "out", "kind": "output", "field": "items"},
]


@pytest.fixture(autouse=True)
def without_implicit(monkeypatch):
    monkeypatch.setattr(measure, "find_spec", lambda _: None)


def test_lists_along_a_sequence_follow_from_everything_before_the_part(tmp_path):
    rows, later = [[3, 1, 3], [0]], [[[2], [4]], [[4], [1]]]
    data = widenet.dataset_from_lists(
        tmp_path / "data", rows, validation=later[0], heldout=later[1], width=5, sequence=True
    )
    read = {}
    for part in ("validation", "heldout"):

        def lists(history, seen, k, part=part):
            ends = history.indptr.tolist()
            read[part] = [sorted(history.indices[start:end].tolist()) for start, end in pairwise(ends)]
            assert (seen.num_examples, k) == (2, 2)
            return np.tile(np.arange(k), (2, 1))

        evaluate_lists(lists, data, "items", part, [2])
    assert read == {"validation": [[1, 3], [0]], "heldout": [[1, 2, 3], [0, 4]]}


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    widenet.train({"layers": LAYERS}, {"epochs": 1, "batch_size": 10, "shards": 3}, data, folder)
    return folder


def test_the_baselines_are_measured_on_the_same_users(data):
    found = measured(data, "items", "heldout", [3])
    assert list(found) == ["popularity", "item-kNN", "SLIM", "EASE"]
    assert found["popularity"] == evaluate_popularity(data, "items", "heldout", [3])
    users = sum(bool(items) for items in HELDOUT)
    assert {metrics["num_examples"] for metrics in found.values()} == {users}


def test_lists_are_compared_with_the_held_out_items(data):
    counts = np.bincount([item for items in HISTORY for item in items], minlength=WIDTH)

    def lists(entries, seen, k):
        assert entries.indices.tolist() == seen.indices.tolist()
        return np.tile(np.arange(k), (entries.num_examples, 1))

    expected = RankingMetrics([4], counts)
    for items in HELDOUT:
        expected.add(np.arange(4)[None], np.array([0, len(items)]), np.array(items, dtype=np.int64))
    assert evaluate_lists(lists, data, "items", "heldout", [4]) == expected.result()


def evaluated(run, data):
    found = widenet.Model.load(run).evaluate(data, ks=[3], baselines=True, interval=0.9)
    return {name: (dict(metrics), metrics.intervals) for name, metrics in found.baselines.items()}


@pytest.mark.slow
def test_every_process_has_the_baselines_of_one(run, data, groups):
    alone = evaluated(run, data.path)
    assert {"popularity", "item-kNN", "SLIM", "EASE"} <= set(alone)
    lower, upper = alone["EASE"][1]["ndcg@3"]
    assert lower < alone["EASE"][0]["ndcg@3"] < upper
    several = groups(3)(evaluated, run, data.path)
    assert several == [several[0]] * 3
    assert {name: several[0][name] for name in alone} == alone


def test_baselines_rank_known_items_where_the_run_does(run, data, tmp_path):
    again = widenet.dataset_from_lists(tmp_path / "again", HISTORY, heldout=HISTORY, width=WIDTH)
    found = measured(again, "items", "heldout", [WIDTH], exclude_seen=False)
    assert found["popularity"][f"recall@{WIDTH}"] == found["EASE"][f"recall@{WIDTH}"] == 1
    assert measured(again, "items", "heldout", [WIDTH])["popularity"][f"recall@{WIDTH}"] == 0
    ranked = widenet.Model.load(run).evaluate(data, ks=[3], baselines=True, exclude_seen=False).baselines
    assert ranked == measured(data, "items", "heldout", [3], exclude_seen=False)
