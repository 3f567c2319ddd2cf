"""A tile of single units in Triton against activations and losses in torch, in float32 and in float64."""

import pytest
import torch

from tests.model.test_output_step import assert_is_the_definition
from tests.model.test_wide_loss import CONTRASTIVE, MARGIN, SINGLE, TIGHT, name_of
from widenet.kernels import table
from widenet.kernels.triton import tile_others as tile_others_module
from widenet.kernels.triton import tile_targets as tile_targets_module
from widenet.kernels.triton.tile_others import tile_others
from widenet.kernels.triton.tile_targets import tile_targets
from widenet.model import wide_loss
from widenet.model.activations import activate, slope
from widenet.model.fused_tiles import formula_of
from widenet.model.losses import loss_of
from widenet.model.sharding import ByUnit
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec

PAIRS = [("l2", activation) for activation in SINGLE]
PAIRS += [(loss, "sigmoid") for loss in ("cross_entropy", "l1")] + [
    (loss, "tanh") for loss in ("hinge", "l2_hinge", CONTRASTIVE)
]
PAIRS += [({"kind": f"{data}scaled_marginal_cross_entropy", **MARGIN}, "sigmoid") for data in ("", "data_")]

TARGETS = {
    "prime sizes": (19, 17, [[(7 * e + 11 * i) % 17 for i in range(e % 5)] for e in range(19)]),
    "no examples": (0, 3, []),
    "no targets": (3, 2, [[], [], []]),
    "all units on": (2, 5, [list(range(5))] * 2),
    "a target named twice": (2, 3, [[1, 1, 2, 1], [1]]),
}


@pytest.fixture(autouse=True)
def _small_programs(monkeypatch):
    monkeypatch.setattr(tile_others_module, "_EXAMPLES", 16)
    monkeypatch.setattr(tile_others_module, "_UNITS", 16)
    monkeypatch.setattr(tile_targets_module, "_ENTRIES", 2)


def output_of(loss, activation):
    return NetworkSpec.of(
        {
            "layers": [
                {"name": "in", "kind": "input", "field": "in"},
                {"name": "h", "units": 5},
                {"name": "out", "kind": "output", "field": "out", "loss": loss, "activation": activation},
            ]
        }
    ).outputs[0]


def torch_tile(spec, logits_ET, batch, target_E, other_E):
    """Loss, deltas and bias gradient of a tile by the formulas in torch; of a target that is named twice
    the last counts.
    """
    loss = loss_of(spec.loss)
    t_ET, is_target_ET = torch.zeros_like(logits_ET), torch.zeros_like(logits_ET, dtype=torch.bool)
    a_ET = activate(spec.activation, logits_ET)
    value_ET, slope_ET = loss.others(logits_ET, a_ET)
    total = (value_ET.double() * other_E[:, None].double()).sum()
    for e, u, t in zip(
        batch.example_of_entry().tolist(),
        batch.indices.tolist(),
        batch.values_or_ones().tolist(),
        strict=True,
    ):
        t_ET[e, u], is_target_ET[e, u] = t, True
        own = loss.cells(logits_ET[e, u], a_ET[e, u], torch.tensor(t, dtype=logits_ET.dtype))[0]
        total += own.double() * (target_E if t > 0 else other_E)[e] - value_ET[e, u].double() * other_E[e]
    _, target_slope_ET = loss.cells(logits_ET, a_ET, t_ET)
    weight_ET = torch.where(is_target_ET & (t_ET > 0), target_E[:, None], other_E[:, None])
    delta_ET = torch.where(is_target_ET, target_slope_ET, slope_ET) * weight_ET
    factor_ET = None if loss.slope_of_logit else slope(spec.activation, logits_ET, a_ET)
    delta_ET = delta_ET if factor_ET is None else delta_ET * factor_ET
    return total, delta_ET, delta_ET.sum(dim=0)


def triton_tile(spec, products_ET, bias_T, batch, target_E, other_E, device):
    own, formula = (
        ByUnit.of(batch.to(device)),
        formula_of(spec, loss_of(spec.loss).slope_of_logit),
    )
    products_ET, target_E, other_E = (tensor.to(device) for tensor in (products_ET, target_E, other_E))
    bias_T = None if bias_T is None else bias_T.to(device)
    starts = torch.searchsorted(own.units_Z, torch.arange(products_ET.shape[1] + 1, device=device))
    loss, delta_ET, sums_T = tile_others(products_ET, bias_T, other_E, formula)
    entries = starts, own.examples_Z, own.values_Z, products_ET, bias_T
    loss = loss + tile_targets(*entries, target_E, other_E, delta_ET, sums_T, formula)
    return loss.cpu(), delta_ET.cpu(), sums_T.cpu()


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(spec, num_examples, num_units, rows, device, with_values=True, with_bias=True):
    batch = SparseBatch.from_lists(rows)
    if with_values:
        batch = batch.with_values(
            numbers(batch.num_entries, seed=3).abs() * (torch.arange(batch.num_entries) % 7 > 0)
        )
    products_ET, bias_T = (
        3 * numbers(num_examples, num_units),
        (numbers(num_units, seed=1) if with_bias else None),
    )
    logits_ET = products_ET if bias_T is None else products_ET + bias_T
    weights = numbers(num_examples, seed=4).abs(), numbers(num_examples, seed=5).abs()
    plain = torch_tile(spec, logits_ET, batch, *weights)
    exact = torch_tile(spec, logits_ET.double(), batch, *(weight.double() for weight in weights))
    found = triton_tile(spec, products_ET, bias_T, batch, *weights, device)
    for ours, theirs, truth in zip(found, plain, exact, strict=True):
        worst = (theirs - truth).abs().max() if theirs.numel() else 0.0
        magnitude = truth.abs().max() if truth.numel() else 0.0
        assert bool(((ours - truth).abs() <= worst + 2.0**-22 * (magnitude + 1e-3)).all())


@pytest.mark.parametrize(("loss", "activation"), PAIRS, ids=name_of)
def test_a_tile_is_that_of_the_formulas(loss, activation, device):
    check(output_of(loss, activation), *TARGETS["prime sizes"], device)


@pytest.mark.parametrize("has", [True, False], ids=["values and biases", "neither"])
@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS)
def test_a_tile_of_any_shape_is_right(case, has, device):
    check(output_of("cross_entropy", "sigmoid"), *case, device, with_values=has, with_bias=has)


def test_small_and_large_logits_keep_their_digits(device):
    logits_ET = torch.tensor(
        [[-80.0, -30.0, -17.0, -9.0, -1e-3, -1e-6, 0.0, 1e-6, 1e-3, 9.0, 17.0, 30.0, 80.0]]
    )
    # A device's exponential rounds z * log2(e) first, and a loss squares the error of this.
    error = 2.0**-18 if device.type == "cuda" else 2.0**-19
    for activation in ("tanh", "elu", "selu", "softplus"):
        spec = output_of("l2", activation)
        formula = formula_of(spec, by_logit=False)
        for unit in range(logits_ET.shape[1]):
            loss, _, _ = tile_others(
                logits_ET[:, unit : unit + 1].contiguous().to(device),
                None,
                torch.ones(1, device=device),
                formula,
            )
            truth = 0.5 * activate(spec.activation, logits_ET[0, unit].double()) ** 2
            assert abs(float(loss) - float(truth)) <= error * float(truth) + 2.0**-125, (activation, unit)


STEPS = [
    ("cross_entropy", "sigmoid"),
    ("cross_entropy", "softmax"),
    ({"kind": "scaled_marginal_cross_entropy", **TIGHT}, "softmax"),
    ("l2", "tanh"),
    (CONTRASTIVE, "tanh"),
]


@pytest.mark.parametrize("kind", ["sparse", "sparse with values"])
@pytest.mark.parametrize(("loss", "activation"), STEPS, ids=name_of)
def test_a_step_with_its_tiles_in_triton_is_its_definition(loss, activation, kind, device, monkeypatch):
    monkeypatch.setitem(table.TABLE, "tile", ("triton",))
    seen = []
    monkeypatch.setattr(wide_loss.FusedPasses, "adds_biases", property(lambda _: seen.append(1) or True))
    assert_is_the_definition(loss, activation, kind, device)
    assert seen
