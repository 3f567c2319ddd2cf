"""Loss and slopes of a tile in one pass, beside float64's."""

from itertools import product

import pytest
import torch
from torch.nn.functional import softplus

from widenet.kernels.native import product_routine
from widenet.kernels.output_passes import Entries, ShardTiles, SlopeNumbers, make_slopes, tile_slopes

NOTHING = Entries(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
ONE = SlopeNumbers("sigmoid", None, torch.ones(1), torch.ones(1))


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softplus_sums(z_ET):
    """Sums float64 [E] and slopes [E, T] of the cross-entropy under a sigmoid, where nothing is a target."""
    slopes = [z_E1T.clone() for z_E1T in z_ET.split(1)]
    sums = [tile_slopes(z_T, None, NOTHING, ONE)[0] for z_T in slopes]
    return torch.tensor(sums, dtype=torch.float64), torch.cat(slopes)


@pytest.mark.parametrize("units", [1, 7, 64, 338, 512, 70_000])
@pytest.mark.parametrize("level", [-60.0, -20.0, -9.0, -1.0, 0.0, 1.0, 9.0, 20.0])
def test_the_sum_over_units_is_that_of_softplus(units, level):
    z_ET = level + drawn(6, units, seed=units)
    found_E, slope_ET = softplus_sums(z_ET)
    expected_E = softplus(z_ET.double(), threshold=100.0).sum(dim=1)
    torch.testing.assert_close(found_E, expected_E, rtol=1e-6, atol=3e-16 * units)
    torch.testing.assert_close(slope_ET, torch.sigmoid(z_ET.double()).float(), rtol=5e-7, atol=0)


SHAPES = list(product([2, 7, 256], [1, 3, 8, 600], [1, 2, 17, 511]))
"""Examples, units of the hidden layer, units of a tile. Nobody multiplies for a single example."""


@pytest.mark.skipif(not product_routine(), reason="torch exports no sgemm here")
@pytest.mark.parametrize(("examples", "hidden", "units"), SHAPES)
def test_products_have_the_bits_of_torchs(examples, hidden, units):
    direct_EH, weight_TH, bias_T = drawn(examples, hidden), drawn(units, hidden, seed=1), drawn(units, seed=2)
    numbers = SlopeNumbers("sigmoid", None, torch.ones(examples), torch.ones(examples))
    slope_ET, gradient_TH = direct_EH @ weight_TH.T, torch.empty(units, hidden)
    loss, sum_T = tile_slopes(slope_ET, bias_T, NOTHING, numbers)
    expected = [torch.zeros(examples, hidden).addmm_(slope_ET, weight_TH), slope_ET.T @ direct_EH, sum_T]
    starts, edges = torch.tensor([0, units]), torch.tensor([0, 0])
    shard = ShardTiles(direct_EH, weight_TH, bias_T, starts, edges, NOTHING)
    found = [torch.zeros(examples, hidden), gradient_TH, torch.zeros(units)]
    assert make_slopes(shard, None, False, numbers, found[2], gradient_TH, found[0]) == loss
    assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True] * 3
