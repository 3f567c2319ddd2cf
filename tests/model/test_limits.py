"""Limits and factors on the gradients by a layer's sums, against the dense twin."""

import pytest
import torch

from tests.model.test_wide_loss import KINDS, PAIRS, ROW_WISE, document, name_of, targets_of
from tests.model.twin import assert_step_matches_twin, random_batch, sparse

BOOST = {"delta_boost": {"target": 3.0, "other": 0.25}}
UNIT_PAIRS = [pair for pair in PAIRS if name_of(pair[1]) not in ROW_WISE]


def step(loss, activation, kind, output, training=None, hidden=None, weighted=True):
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    weights_E = torch.rand(7, generator=generator) * 3 if weighted else None
    layers = document(loss, activation, **output)
    layers["layers"][1].update(hidden or {})
    return assert_step_matches_twin(
        layers, {"in": sparse(23), "out": facts}, batch, {"shards": 3, **(training or {})}, weights_E
    )


def in_turn(pairs, kinds):
    """Each loss under each activation, with one kind of targets after the other."""
    return [
        pytest.param(*pair, kinds[number % len(kinds)], id=f"{name_of(pair[0])}-{pair[1]}-{number}")
        for number, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("loss", "activation", "kind"), in_turn(PAIRS, KINDS))
def test_boosts_multiply_the_gradients_of_targets_and_of_others(loss, activation, kind):
    step(loss, activation, kind, BOOST)


@pytest.mark.parametrize(("loss", "activation", "kind"), in_turn(UNIT_PAIRS, KINDS[:2]))
def test_where_others_are_ignored_only_stored_targets_count(loss, activation, kind):
    step(loss, activation, kind, {"others": "ignore"})


@pytest.mark.parametrize(
    "output", [{"delta_norm": 0.3}, {"delta_norm": 0.3, **BOOST}, {"delta_norm": 1e6}], ids=str
)
@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize(
    ("loss", "activation"),
    [("cross_entropy", "softmax"), ("cross_entropy", "sigmoid"), ("l2", "relu_max"), ("l1", "tanh")],
)
def test_each_examples_gradient_by_the_logits_is_kept_within_a_length(loss, activation, kind, output):
    if "delta_boost" not in output:
        step(loss, activation, kind, output)
    step(loss, activation, kind, output, {"gradient_norm_limit": 0.1})


@pytest.mark.parametrize("limit", [0.02, 1e6])
@pytest.mark.parametrize("loss", ["cross_entropy", "l2"])
def test_each_examples_gradient_by_a_hidden_layers_sums_is_kept_within_a_length(limit, loss):
    step(
        loss, "softmax", "sparse", {}, hidden={"delta_norm": limit, "activation": "sigmoid", "sparseness": {}}
    )
