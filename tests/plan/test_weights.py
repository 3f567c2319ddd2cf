"""The weights of a network: names, shapes, owners and users."""

import pytest

from widenet.plan.binding import bind
from widenet.plan.layout import Link, Weight, Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {"items": Width(30), "tags": Width(7), "age": Width(3, kind="dense")}


def weights(*layers):
    return bind(NetworkSpec.of({"layers": list(layers)}), TrainingSpec(), FIELDS)


ITEMS = {"name": "in", "kind": "input", "field": "items"}
AGE = {"name": "age", "kind": "input", "field": "age"}
OUT = {"name": "out", "kind": "output", "field": "items"}


def test_a_sparse_input_and_an_output_are_wide_and_what_lies_between_is_not():
    found = weights(
        ITEMS,
        AGE,
        {"name": "low", "units": 5, "source": ["in", "age"]},
        {"name": "high", "units": 4, "bias": False},
        OUT,
    )
    assert found.units == {"in": 30, "age": 3, "low": 5, "high": 4, "out": 30}
    assert found.weights == {
        "low/in": Weight("low", 30, 5, wide=True, input="in"),
        "low/age": Weight("low", 5, 3, wide=False),
        "low bias": Weight("low", 5, None, wide=False),
        "high/low": Weight("high", 4, 5, wide=False),
        "out": Weight("out", 30, 4, wide=True, by_tiles=True),
        "out bias": Weight("out", 30, None, wide=True, by_tiles=True),
    }
    assert found.links["low", "age"] == Link("low/age")
    assert found.links["out", ""] == Link("out")


@pytest.mark.parametrize("owner", ["input", "output"])
def test_a_shared_weight_stands_once_and_is_stepped_by_tiles(owner):
    hidden, output = {"name": "mid", "units": 5}, dict(OUT)
    if owner == "input":
        output["weights"] = {"layer": "mid", "transposed": True}
        name, shared = "mid/in", Weight("mid", 30, 5, wide=True, by_tiles=True, input="in")
    else:
        hidden["weights"] = {"layer": "out", "transposed": True}
        name, shared = "out", Weight("out", 30, 5, wide=True, by_tiles=True)
    found = weights(ITEMS, hidden, output)
    assert [weight for weight in found.weights.values() if weight.columns] == [shared]
    assert found.links == {
        ("mid", "in"): Link(name, owner == "output"),
        ("out", ""): Link(name, owner == "input"),
    }


def test_rows_are_features_where_a_hidden_layer_meets_a_sparse_input_and_of_an_output_never():
    found = weights(
        ITEMS,
        AGE,
        {"name": "low", "units": 5, "source": ["in", "age"]},
        OUT | {"source": "in"},
        OUT | {"name": "up"} | {"source": "low"},
    )
    assert [name for name, weight in found.weights.items() if weight.rows_are_features] == ["low/in"]
    assert {name: weight.input for name, weight in found.weights.items() if weight.by_columns} == {
        "out": "in"
    }
