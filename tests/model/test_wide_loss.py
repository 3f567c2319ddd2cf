"""Every loss under every activation, held against the dense twin; tiles and memory change no bits."""

import pytest
import torch

from tests.model.twin import Real, assert_step_matches_twin, dense_field, random_batch, snapshot, sparse
from widenet.errors import NumericsError
from widenet.plan import tiles
from widenet.sparse import SparseBatch
from widenet.training import step

SINGLE = [
    "sigmoid",
    "tanh",
    "relu",
    "selu",
    "softplus",
    "softsign",
    "linear",
    "gelu",
    "silu",
    {"kind": "leaky_relu", "slope": 0.2},
    {"kind": "leaky_relu", "slope": 2.5},
    {"kind": "elu", "alpha": 1.3},
    {"kind": "elu", "alpha": 1.3, "scale": 0.8},
]
ROW_WISE = ["softmax", "relu_max", "linear_max"]
MARGIN = {"one_target": 0.6, "zero_target": 0.4, "one_scale": 1.5, "zero_scale": 0.7}
TIGHT = {"one_target": 0.05, "one_scale": 1.5}
PAIRS = [
    ("cross_entropy", "sigmoid"),
    ("cross_entropy", "softmax"),
    ({"kind": "cross_entropy", "targets": "sum"}, "softmax"),
    ({"kind": "scaled_marginal_cross_entropy", **MARGIN}, "sigmoid"),
    ({"kind": "scaled_marginal_cross_entropy", **TIGHT}, "softmax"),
    ({"kind": "data_scaled_marginal_cross_entropy", **MARGIN}, "sigmoid"),
    ({"kind": "data_scaled_marginal_cross_entropy", **TIGHT}, "softmax"),
    *[(loss, activation) for loss in ("l1", "l2") for activation in [*SINGLE, *ROW_WISE]],
    *[(loss, activation) for loss in ("hinge", "l2_hinge") for activation in SINGLE],
]


def name_of(part):
    if isinstance(part, dict):
        return part["kind"] + "".join(f" {value}" for key, value in part.items() if key == "targets")
    return part if isinstance(part, str) else None


def document(loss, activation, **output):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "in"},
            {"name": "h", "units": 5, "activation": "tanh"},
            {
                "name": "out",
                "kind": "output",
                "field": "out",
                "loss": loss,
                "activation": activation,
                **output,
            },
        ]
    }


def targets_of(kind, generator, num_examples, width, loss):
    """Facts and a batch of targets: sparse with values between 0 and 1 (a zero among them), sparse
    without, or dense.
    """
    name = loss if isinstance(loss, str) else loss["kind"]
    if kind == "dense":
        chosen = torch.rand(num_examples, width, generator=generator) * (
            torch.rand(num_examples, width, generator=generator) < 0.3
        )
        return dense_field(width, 0, 1), torch.where(chosen > 0, 1.0, -1.0) if name == "hinge" else chosen
    if kind == "sparse":
        return sparse(width), random_batch(generator, num_examples, width, 6)
    batch = random_batch(
        generator, num_examples, width, 6, lambda n: 0.1 + 0.9 * torch.rand(n, generator=generator)
    )
    batch.values[0] = 0.0
    return sparse(width, 0, 1), batch


KINDS = ["sparse", "sparse with values", "dense"]
TWINS = [
    pytest.param(
        *pair,
        kind,
        shards,
        id=f"{name_of(pair[0])}-{name_of(pair[1]) or pair[1]['kind']}-{kind}-{shards} shards",
        marks=[] if (number + place + shards) % 2 else pytest.mark.long,
    )
    for number, pair in enumerate(PAIRS)
    for place, kind in enumerate(KINDS)
    for shards in (8, 3)
]
"""Every loss and activation is always run with every kind of targets, with 8 shards and with 3 and weights of
examples in turn.
"""


@pytest.mark.parametrize(("loss", "activation", "kind", "shards"), TWINS)
def test_a_step_under_every_loss_and_activation_is_that_of_the_dense_twin(loss, activation, kind, shards):
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    weights_E = torch.rand(7, generator=generator) * 3 if shards == 3 else None
    assert_step_matches_twin(
        document(loss, activation), {"in": sparse(23), "out": facts}, batch, {"shards": shards}, weights_E
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loss", "activation"), PAIRS[:7], ids=name_of)
def test_a_step_without_the_native_library_is_that_of_the_dense_twin(loss, activation, kind, monkeypatch):
    monkeypatch.setattr(step, "library_runs", lambda _: False)
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch, fields = (
        {"in": random_batch(generator, 7, 23, 6), "out": targets},
        {"in": sparse(23), "out": facts},
    )
    weights_E = torch.rand(7, generator=generator) * 3
    assert_step_matches_twin(document(loss, activation), fields, batch, {"shards": 3}, weights_E)


@pytest.mark.parametrize("kind", ["sparse", "sparse with values", "dense"])
@pytest.mark.parametrize(
    ("loss", "activation"),
    [pair for pair in PAIRS if name_of(pair[1]) in ("sigmoid", "softmax", "relu_max", "linear_max")],
    ids=name_of,
)
def test_many_tiles_are_right_and_logits_kept_or_computed_again_are_the_same_bits(
    loss, activation, kind, monkeypatch
):
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 1)
    monkeypatch.setattr(tiles, "LEAST_UNITS", 64)
    generator = torch.Generator().manual_seed(9)
    facts, targets = targets_of(kind, generator, 6, 431, loss)
    batch = {"in": random_batch(generator, 6, 23, 6), "out": targets}
    fields = {"in": sparse(23), "out": facts}
    kept, _ = assert_step_matches_twin(document(loss, activation), fields, batch, {"shards": 2})
    assert tiles.tile_units(6, "cpu") == 64
    monkeypatch.setitem(tiles.KEPT_BYTES, "cpu", 0)
    again = Real(document(loss, activation), {"shards": 2}, fields)
    again.step(batch)
    assert again.bits() == kept.bits()


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("limit", [None, 0.01])
def test_a_tied_or_limited_network_gives_the_same_bits_with_and_without_room_for_logits(
    activation, limit, monkeypatch
):
    generator = torch.Generator().manual_seed(9)
    tied = document("cross_entropy", activation, weights={"layer": "h", "transposed": True})
    fields = {"in": sparse(301), "out": sparse(301)}
    batch = {"in": random_batch(generator, 6, 301, 6), "out": random_batch(generator, 6, 301, 6)}
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 1)
    monkeypatch.setattr(tiles, "LEAST_UNITS", 64)
    bits = []
    for room in (tiles.KEPT_BYTES["cpu"], 0):
        monkeypatch.setitem(tiles.KEPT_BYTES, "cpu", room)
        real = Real(tied, {"shards": 2, "gradient_norm_limit": limit}, fields)
        losses = [real.step(batch)]
        bits.append((losses, real.bits()))
    assert bits[0] == bits[1]


UNDEFINED = [("out", *pair) for pair in PAIRS]
UNDEFINED += [(where, *pair) for where in ("h/in", "h bias") for pair in PAIRS[:7]]


@pytest.mark.parametrize(("where", "loss", "activation"), UNDEFINED, ids=name_of)
def test_an_undefined_weight_gives_an_undefined_loss_that_names_its_layer(loss, activation, where):
    generator = torch.Generator().manual_seed(5)
    real = Real(document(loss, activation), {}, {"in": sparse(23), "out": sparse(37)})
    weight = (
        real.network.trunk[where].tensor.detach()
        if where == "h bias"
        else real.network.wide[where].parts[1].weight
    )
    weight.view(-1)[0] = torch.nan
    batch = {"in": SparseBatch.from_lists([list(range(23)), [1]]), "out": random_batch(generator, 2, 37, 6)}
    layer = "out" if where == "out" else "h"
    with pytest.raises(NumericsError) as caught:
        real.step(batch)
    assert f'layer "{layer}"' in caught.value.rule


@pytest.mark.parametrize("logit", [-90.0, 90.0])
@pytest.mark.parametrize(("loss", "activation"), [("cross_entropy", "sigmoid"), ("cross_entropy", "softmax")])
def test_cross_entropy_of_extreme_logits_is_finite_and_exact(loss, activation, logit):
    real = Real(
        document(loss, activation, initializer={"kind": "constant"}), {}, {"in": sparse(2), "out": sparse(3)}
    )
    for shard, part in real.network.wide["out bias"].parts.items():
        part.weight.fill_(logit if shard == 0 else 0.0)
    found = real.step({"in": SparseBatch.from_lists([[0]]), "out": SparseBatch.from_lists([[0]])})
    others = 2 * torch.log(torch.tensor(2.0)).item()
    expected = (
        max(-logit, 0) + others
        if activation == "sigmoid"
        else max(-logit, 0) + (torch.log(torch.tensor(2.0)).item() if logit < 0 else 0)
    )
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("output", [{}, {"cosine": {"temperature": 0.5}}, {"bias": False}], ids=str)
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_bfloat16_products_give_the_float32_step_to_about_three_digits(activation, output):
    generator = torch.Generator().manual_seed(5)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": random_batch(generator, 7, 37, 6)}
    layers = document("cross_entropy", activation, **output)
    settings = {"optimizer": {"kind": "sgd", "learning_rate": 1.0}}
    full, half = (
        Real(layers, settings | {"precision": name}, {"in": sparse(23), "out": sparse(37)})
        for name in ("float32", "bfloat16")
    )
    first = snapshot(full.network)
    exact, rough = full.step(batch), half.step(batch)
    assert exact != rough
    assert rough == pytest.approx(exact, rel=1e-2)
    for name, weight in snapshot(full.network).items():
        assert (snapshot(half.network)[name] - weight).norm() <= 2e-2 * (weight - first[name]).norm()
