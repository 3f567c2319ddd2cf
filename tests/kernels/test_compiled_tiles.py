"""Loss and slopes of a tile in one compiled pass, beside float64's."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from widenet.kernels import compiled_tiles
from widenet.kernels.compiled_tiles import Entries

NOTHING, ONES = Entries(np.zeros(0, np.int64), np.zeros(0, np.int64)), np.ones(2, np.float32)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def softplus_sums(z_ET):
    """Sums float64 [E] and slopes [E, T] of the cross-entropy under a sigmoid, where nothing is a target."""
    slopes = [z_E1T.clone() for z_E1T in z_ET.split(1)]
    sums = [compiled_tiles.sigmoid(z_T, None, NOTHING, None, ONES[:1], ONES[:1])[0] for z_T in slopes]
    return torch.tensor(sums, dtype=torch.float64), torch.cat(slopes)


@pytest.mark.parametrize("units", [1, 7, 64, 338, 512, 70_000])
@pytest.mark.parametrize("level", [-60.0, -20.0, -9.0, -1.0, 0.0, 1.0, 9.0, 20.0])
def test_the_sum_over_units_is_that_of_softplus(units, level):
    z_ET = level + drawn(6, units, seed=units)
    found_E, slope_ET = softplus_sums(z_ET)
    expected_E = softplus(z_ET.double(), threshold=100.0).sum(dim=1)
    torch.testing.assert_close(found_E, expected_E, rtol=1e-6, atol=3e-16 * units)
    torch.testing.assert_close(slope_ET, torch.sigmoid(z_ET.double()).float(), rtol=5e-7, atol=0)


def entries_of(examples, units, num_entries, seed):
    """Distinct places in order of units, then examples, and a value for each, zero among them."""
    places = (
        torch.randperm(examples * units, generator=torch.Generator().manual_seed(seed))[:num_entries]
        .sort()
        .values
    )
    return Entries((places % examples).numpy(), (places // examples).numpy()), drawn(
        num_entries, seed=seed
    ).clamp_min(0)


@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_targets_take_the_place_of_other_units(with_bias, with_values):
    examples, units = 130, 300
    entries, values_Z = entries_of(examples, units, 500, seed=1)
    logits_ET, bias_T = 3 * drawn(examples, units), drawn(units, seed=2) if with_bias else None
    target_E, other_E = drawn(examples, seed=3).abs(), drawn(examples, seed=4).abs()
    z_ET = logits_ET.double() if bias_T is None else (logits_ET.float() + bias_T).double()
    t_ET = torch.zeros(examples, units, dtype=torch.float64)
    t_ET[entries.examples_Z, entries.units_Z] = values_Z.double() if with_values else 1.0
    weight_ET = torch.where(t_ET > 0, target_E[:, None], other_E[:, None]).double()
    given = values_Z.numpy() if with_values else None
    later = Entries(entries.examples_Z, entries.units_Z + 7).within(slice(None), 7)
    loss, bias_gradient_T = compiled_tiles.sigmoid(
        logits_ET, bias_T, later, given, target_E.numpy(), other_E.numpy()
    )
    assert loss == pytest.approx(
        float(((softplus(z_ET, threshold=100.0) - t_ET * z_ET) * weight_ET).sum()), rel=1e-6
    )
    slope_ET = (torch.sigmoid(z_ET) - t_ET) * weight_ET
    torch.testing.assert_close(logits_ET.double(), slope_ET, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(bias_gradient_T.double(), slope_ET.sum(dim=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("units", [1, 40, 700])
def test_a_softmax_over_tiles_is_that_over_all_units(units):
    examples, halves = 130, [(0, units), (units, 2 * units)]
    logits_EL, bias_L = 5 * drawn(examples, 2 * units), drawn(2 * units, seed=5)
    entries, pulls_Z = entries_of(examples, units, min(200, examples * units), seed=6)
    coupling_E, tiles = drawn(examples, seed=7).abs(), compiled_tiles
    peak_E, total_E = torch.full((examples,), -torch.inf), torch.zeros(examples, dtype=torch.float64)
    z_EL = (logits_EL.float() + bias_L).double()
    for start, stop in halves:
        found_Z, sums = torch.empty(len(pulls_Z)), (peak_E.numpy(), total_E.numpy())
        tiles.add_softmax_sums(
            logits_EL[:, start:stop].contiguous(), bias_L[start:stop], entries, found_Z.numpy(), *sums
        )
        torch.testing.assert_close(found_Z.double(), z_EL[:, start:stop][entries.examples_Z, entries.units_Z])
    log_sum_E = peak_E.double() + total_E.log()
    torch.testing.assert_close(log_sum_E, torch.logsumexp(z_EL, dim=1), rtol=1e-6, atol=1e-6)
    for start, stop in halves:
        delta_ET = logits_EL[:, start:stop].contiguous()
        rows = log_sum_E.float().numpy(), coupling_E.numpy()
        bias_gradient_T = tiles.softmax(delta_ET, bias_L[start:stop], entries, pulls_Z.numpy(), *rows)
        expected_ET = torch.softmax(z_EL, dim=1)[:, start:stop] * coupling_E[:, None].double()
        expected_ET[entries.examples_Z, entries.units_Z] -= pulls_Z.double()
        torch.testing.assert_close(delta_ET.double(), expected_ET, rtol=4e-6, atol=1e-6)
        torch.testing.assert_close(bias_gradient_T.double(), expected_ET.sum(dim=0), rtol=1e-5, atol=1e-5)
