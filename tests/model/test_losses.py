"""The cross-entropy's sum over units that no target names, which spares logarithms, beside float64's softplus."""

import pytest
import torch

from widenet.model.losses import loss_of
from widenet.spec.activations import PlainActivation
from widenet.spec.losses import CrossEntropy


def summed(z_ET):
    """Sums float32 [E] and slopes [E, T] of the cross-entropy under a sigmoid."""
    return loss_of(CrossEntropy(kind="cross_entropy"), PlainActivation(kind="sigmoid")).others_by_example(z_ET, torch.sigmoid(z_ET))


@pytest.mark.parametrize("units", [1, 2, 7, 8, 12, 338, 512])
@pytest.mark.parametrize("level", [-60.0, -20.0, -9.0, -1.0, 0.0, 1.0, 9.0, 20.0])
def test_the_sum_over_units_is_that_of_softplus(units, level):
    z_ET = level + torch.randn(6, units, generator=torch.Generator().manual_seed(units))
    found_E, slope_ET = summed(z_ET)
    expected_E = torch.nn.functional.softplus(z_ET.double(), threshold=100.0).sum(dim=1)
    torch.testing.assert_close(found_E.double(), expected_E, rtol=2e-6, atol=1e-35)
    torch.testing.assert_close(slope_ET, torch.sigmoid(z_ET))


def test_units_that_are_quite_sure_add_nothing_or_all():
    z_ET = torch.tensor([[-torch.inf, 0.0, 0.0, 0.0], [90.0, -90.0, 30.0, -30.0], [torch.inf, 0.0, 0.0, 0.0], [torch.nan, 0.0, 0.0, 0.0]])
    found_E = summed(z_ET)[0]
    torch.testing.assert_close(found_E[:2].double(), torch.nn.functional.softplus(z_ET[:2].double(), threshold=1e3).sum(dim=1))
    assert found_E[2] == torch.inf
    assert found_E[3].isnan()
