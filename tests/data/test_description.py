"""Descriptions: numbers by hand, the same for every division into parts."""

import json

import numpy as np
import pytest

from widenet.data.describe import describe, spread
from widenet.data.lists import dataset_from_lists


@pytest.fixture
def dataset(tmp_path):
    dataset_from_lists(
        tmp_path / "ds",
        [[0, 1, 2], [0], [], [0]],
        values=[[1, 5, 2], [3], [], [1]],
        heldout=[[3], [], [], []],
        width=5,
        sparse={"land": [[0], [1], [1], []]},
        dense={"age": [[1], [2], [3], [4]]},
    )
    return tmp_path / "ds"


def test_a_description_has_the_numbers_of_every_part(dataset):
    described = describe(dataset)
    assert (described["num_examples"], described["has_weights"]) == (4, False)
    assert list(described["fields"]) == ["items", "land", "age"]
    items = described["fields"]["items"]
    assert {key: items[key] for key in items if key != "parts"} == {
        "kind": "sparse",
        "width": 5,
        "has_values": True,
        "min_value": 1.0,
        "max_value": 5.0,
        "titles": 0,
    }
    train = items["parts"]["train"]
    assert (
        train["entries"],
        train["density"],
        train["examples_with_entries"],
        train["features_with_entries"],
    ) == (5, 0.25, 3, 3)
    assert train["activity"] == {
        "number": 4,
        "total": 5,
        "mean": 1.25,
        "quantiles": {"min": 0, "25%": 0, "median": 1, "75%": 1, "90%": 3, "99%": 3, "max": 3},
        "top_1_percent": 0.6,
        "top_10_percent": 0.6,
        "gini": 0.45,
    }
    assert train["popularity"]["quantiles"]["max"] == 3
    assert items["parts"]["heldout"]["entries"] == 1
    assert described["fields"]["age"]["parts"] == {}
    json.dumps(described)


def test_gini_and_top_shares_are_those_of_their_definitions():
    counts = np.array([5, 0, 3, 3, 9, 1])
    pairs = sum(abs(int(one) - int(other)) for one in counts for other in counts)
    assert spread(counts)["gini"] == pytest.approx(pairs / (2 * len(counts) * counts.sum()))
    assert spread(np.full(1000, 7))["gini"] == pytest.approx(0, abs=1e-12)
    found = spread(np.arange(1000))
    assert found["top_1_percent"] == sum(range(990, 1000)) / sum(range(1000))
    assert found["top_10_percent"] == sum(range(900, 1000)) / sum(range(1000))
    assert spread(np.zeros(0, dtype=np.int64))["quantiles"]["max"] == 0
