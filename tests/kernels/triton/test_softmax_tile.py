"""The two passes of a softmax in Triton, tile by tile, against the closed form in float64."""

import pytest
import torch

from widenet.kernels.triton import softmax_sums
from widenet.kernels.triton import softmax_tile as softmax_tile_module
from widenet.kernels.triton.softmax_pulls import softmax_pulls
from widenet.kernels.triton.softmax_tile import softmax_tile
from widenet.kernels.triton.target_logits import target_logits
from widenet.model.sharding import ByUnit
from widenet.sparse import SparseBatch

SHAPES = {"prime sizes": (19, 37), "no examples": (0, 3), "one unit": (3, 1)}


@pytest.fixture(autouse=True)
def _small_programs(monkeypatch):
    monkeypatch.setattr(softmax_sums, "_BLOCK", 16)
    monkeypatch.setattr(softmax_tile_module, "_EXAMPLES", 16)
    monkeypatch.setattr(softmax_tile_module, "_UNITS", 16)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sums_over_tiles_are_those_of_the_whole(shape, with_bias, device):
    products_ET, bias_T = 30 * numbers(*shape), numbers(shape[1], seed=1)
    logits_ET = products_ET + bias_T if with_bias else products_ET
    peak_E, total_E = (
        torch.full((shape[0],), -torch.inf, device=device),
        torch.zeros(shape[0], dtype=torch.float64, device=device),
    )
    for start, stop in ((0, shape[1] // 3), (shape[1] // 3, shape[1])):
        bias = bias_T[start:stop].to(device) if with_bias else None
        softmax_sums.add_softmax_sums(
            products_ET[:, start:stop].contiguous().to(device), bias, peak_E, total_E
        )
    assert torch.equal(peak_E.cpu(), logits_ET.amax(dim=1))
    exact_E = torch.exp(logits_ET.double() - logits_ET.amax(dim=1, keepdim=True).double()).sum(dim=1)
    assert torch.allclose(total_E.cpu(), exact_E, rtol=2.0**-21, atol=0)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_deltas_are_shares_of_the_pulls_less_each_targets_own(shape, with_bias, device):
    num_examples, num_units = shape
    products_ET, bias_T = numbers(*shape), numbers(num_units, seed=1) if with_bias else None
    logits_ET = products_ET.double() if bias_T is None else (products_ET + bias_T).double()
    rows = [[(7 * e + 11 * i) % num_units for i in range(min(e % 5, num_units))] for e in range(num_examples)]
    own = ByUnit.of(SparseBatch.from_lists(rows))
    pull_Z = numbers(len(own.units_Z), seed=3).abs()
    log_sum_E, coupling_E = (
        logits_ET.logsumexp(dim=1).float(),
        torch.zeros(num_examples).index_add_(0, own.examples_Z, pull_Z),
    )
    expected_ET = torch.exp(logits_ET - log_sum_E[:, None]) * coupling_E[:, None]
    expected_ET[own.examples_Z, own.units_Z] -= pull_Z

    given = [
        None if each is None else each.to(device) for each in (products_ET, bias_T, log_sum_E, coupling_E)
    ]
    starts = torch.searchsorted(own.units_Z, torch.arange(num_units + 1)).to(device)
    found = []
    for _ in range(2):
        delta_ET, sums_T = softmax_tile(*given)
        examples_Z, logits_Z = own.examples_Z.to(device), torch.zeros(len(pull_Z), device=device)
        target_logits(starts, examples_Z, given[0], given[1], logits_Z)
        loss = softmax_pulls(
            starts, examples_Z, pull_Z.to(device), 2 * pull_Z.to(device), *given, delta_ET, sums_T
        )
        found.append((delta_ET.cpu(), sums_T.cpu(), loss.cpu(), logits_Z.cpu()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert torch.allclose(found[0][0].double(), expected_ET, rtol=2.0**-20, atol=2.0**-21)
    assert torch.allclose(found[0][1].double(), expected_ET.sum(dim=0), rtol=2.0**-20, atol=2.0**-19)
    assert found[0][2].item() == pytest.approx(2 * pull_Z.double().sum().item())
    assert torch.equal(found[0][3], logits_ET.float()[own.examples_Z, own.units_Z])


def test_of_a_target_named_twice_the_last_pull_counts(device):
    products_ET, ones_E = torch.zeros(1, 2, device=device), torch.ones(1, device=device)
    delta_ET, sums_T = softmax_tile(products_ET, None, ones_E, ones_E)
    before_ET = delta_ET.clone()
    starts, examples_Z = (
        torch.tensor([0, 2, 2], device=device),
        torch.zeros(2, dtype=torch.int64, device=device),
    )
    pull_Z = torch.tensor([0.5, 0.25], device=device)
    loss = softmax_pulls(
        starts, examples_Z, pull_Z, pull_Z, products_ET, None, ones_E, ones_E, delta_ET, sums_T
    )
    assert loss.item() == 0.75
    assert torch.allclose(before_ET - delta_ET, torch.tensor([[0.25, 0.0]], device=device))
    assert torch.allclose(before_ET.sum(dim=0) - sums_T, torch.tensor([0.25, 0.0], device=device))
