"""Loss and slopes of a tile in one pass, beside float64's."""

import pytest
import torch
from torch.nn.functional import softplus

from widenet.kernels.output_passes import Entries, SlopeNumbers, tile_slopes

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
