"""Outputs: their tiles, and those that stand on an input or have no weights of their own."""

import pytest
import torch

from tests.model.test_network import BATCH, TOWER_FIELDS, TRAININGS, WISHES, items
from tests.model.twin import assert_step_matches_twin

STANDING = {
    "softmax": {},
    "sigmoid": {"activation": "sigmoid", "bias": False, "delta_boost": {"target": 2.0, "other": 0.5}},
    "linear, l2": {"activation": "linear", "loss": "l2", "delta_norm": 0.3},
    "linear_max, l1": {"activation": "linear_max", "loss": "l1"},
    "hidden asked for": {"predict": "hidden"},
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("output", STANDING.values(), ids=STANDING)
def test_an_output_may_stand_directly_on_a_sparse_input(output, training):
    document = {
        "layers": [
            {
                "name": "in",
                "kind": "input",
                "field": "items",
                "scale": "unit",
                **({"denoise": 0.4} if "predict" in output else {}),
            },
            {"name": "out", "kind": "output", "field": "items", "values": "ignore", **output},
            {"name": "h", "units": 6, "source": "in"},
            {"name": "label", "kind": "output", "field": "label"},
        ]
    }
    batch = {"items": items(values=True), "label": BATCH["label"]}
    assert_step_matches_twin(document, TOWER_FIELDS, batch, training, torch.linspace(0.2, 2, 9))


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize(
    "output",
    [{}, {"activation": "linear", "loss": "l2_hinge"}, {"activation": "sigmoid", "delta_norm": 0.2}],
    ids=str,
)
def test_a_weightless_output_takes_the_units_of_its_source(output, training):
    document = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "wish", "kind": "input", "field": "wishes"},
            *(
                {"name": name, "units": 6, "source": source, "activation": "tanh"}
                for name, source in (("a", "in"), ("b", "wish"), ("c", "in"))
            ),
            *({"name": name, "units": 6, "source": "c", "activation": "tanh"} for name in ("d", "e")),
            {"name": "alike", "kind": "pooling", "function": "cosine", "source": ["a", "b", "c", "d", "e"]},
            {"name": "out", "kind": "output", "field": "label", "bias": False, "weightless": True, **output},
        ]
    }
    assert_step_matches_twin(document, {**TOWER_FIELDS, **WISHES}, BATCH, training, torch.linspace(0.2, 2, 9))


def test_an_output_may_stand_directly_on_a_dense_input():
    document = {
        "layers": [
            {"name": "age", "kind": "input", "field": "age"},
            {"name": "out", "kind": "output", "field": "items"},
        ]
    }
    assert_step_matches_twin(document, TOWER_FIELDS, BATCH)
