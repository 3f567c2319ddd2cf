"""The divisor of a softmax: compiled code has the bits of its definition, which is close to float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.kernels import compiled_softmax, reference
from widenet.kernels.running_top_k import softmax_sum

WIDTHS = [1, 5, 255, 256, 257, 5125]


def logits(num, width, deviation, seed=0):
    return torch.randn(num, width, generator=torch.Generator().manual_seed(seed)) * deviation


def bits(results):
    """Largest logits and sums as integers, all NaN alike."""
    peak_E, sum_E = results
    return (peak_E + 0.0).nan_to_num(7e30).view(torch.int32).tolist(), sum_E.nan_to_num(7e30).tolist()


@pytest.mark.parametrize("deviation", [0, 1, 10, 1000])
@pytest.mark.parametrize("width", WIDTHS)
def test_compiled_code_has_the_bits_of_the_definition(width, deviation):
    logits_ET = logits(9, width, deviation)
    logits_ET[3] = -200 * torch.rand(width, generator=torch.Generator().manual_seed(1))
    logits_ET[4, width // 2], logits_ET[5, 0] = torch.nan, torch.inf
    logits_ET[6], logits_ET[7, :-1] = -torch.inf, -torch.inf
    assert bits(compiled_softmax.softmax_sum(logits_ET)) == bits(reference.softmax_sum(logits_ET))


@pytest.mark.parametrize("place", [0, 131, 260])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_logit_that_is_no_number_makes_the_sum_none_whatever_its_sign(sign, place):
    """Of a processor's own, such as of inf - inf, the sign bit is set."""
    logits_ET = logits(2, 261, 1)
    logits_ET[1, place] = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    peak_E, sum_E = compiled_softmax.softmax_sum(logits_ET)
    assert peak_E.isnan().tolist() == [False, True]
    assert bits((peak_E, sum_E)) == bits(reference.softmax_sum(logits_ET))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=300))
def test_any_logits_have_the_bits_of_the_definition(row):
    logits_ET = torch.tensor([row])
    assert bits(compiled_softmax.softmax_sum(logits_ET)) == bits(reference.softmax_sum(logits_ET))


@pytest.mark.parametrize("deviation", [0, 1, 10, 1000])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_closer_to_float64_than_a_rounding_of_its_logarithm(width, deviation):
    logits_ET = logits(50, width, deviation)
    peak_E, sum_E = softmax_sum(logits_ET)
    assert torch.equal(peak_E, logits_ET.amax(dim=1))
    exact_E = torch.exp(logits_ET.double() - peak_E.double()[:, None]).sum(dim=1)
    np.testing.assert_allclose(sum_E, exact_E, rtol=2e-7)


def test_no_row_depends_on_others():
    logits_ET = logits(70, 1000, 5)
    whole = softmax_sum(logits_ET)
    for first, last in ((0, 1), (1, 2), (3, 66)):
        part = softmax_sum(logits_ET[first:last])
        assert bits(part) == bits([each[first:last] for each in whole])
