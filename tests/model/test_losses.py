"""The cross-entropy's sum over units that no target names, compiled and in torch, beside float64's softplus."""

import math

import pytest
import torch

from widenet.model.losses import cross_entropy, loss_of
from widenet.spec.activations import PlainActivation
from widenet.spec.losses import CrossEntropy


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def implementation(request, monkeypatch):
    """Each test holds with Numba and without."""
    if request.param == "torch":
        monkeypatch.setattr(cross_entropy, "compiled_softplus_sum", lambda: None)


def summed(z_ET):
    """Sums float64 [E] and slopes [E, T] of the cross-entropy under a sigmoid."""
    return loss_of(CrossEntropy(kind="cross_entropy"), PlainActivation(kind="sigmoid")).others_by_example(z_ET, torch.sigmoid(z_ET))


@pytest.mark.parametrize("units", [1, 7, 64, 338, 512, 70_000])
@pytest.mark.parametrize("level", [-60.0, -20.0, -9.0, -1.0, 0.0, 1.0, 9.0, 20.0])
def test_the_sum_over_units_is_that_of_softplus(units, level):
    z_ET = level + torch.randn(6, units, generator=torch.Generator().manual_seed(units))
    found_E, slope_ET = summed(z_ET)
    expected_E = torch.nn.functional.softplus(z_ET.double(), threshold=100.0).sum(dim=1)
    torch.testing.assert_close(found_E, expected_E, rtol=1e-6, atol=2e-16 * units)
    torch.testing.assert_close(slope_ET, torch.sigmoid(z_ET))


def test_units_that_are_quite_sure_add_nothing_or_all():
    z_ET = torch.tensor([[-torch.inf, 0.0, 0.0, 0.0], [90.0, -90.0, 30.0, -30.0], [torch.inf, 0.0, 0.0, 0.0], [torch.nan, 0.0, 0.0, 0.0]])
    found_E = summed(z_ET)[0]
    torch.testing.assert_close(found_E[:2], torch.nn.functional.softplus(z_ET[:2].double(), threshold=1e3).sum(dim=1))
    assert found_E[2] == torch.inf
    assert found_E[3].isnan()


def test_any_number_of_undecided_units_is_summed():
    torch.testing.assert_close(summed(torch.zeros(1, 150_000))[0], torch.tensor([150_000 * math.log(2)], dtype=torch.float64))
