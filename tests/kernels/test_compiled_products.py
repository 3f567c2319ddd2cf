"""Products inside compiled code against torch's, to the bit."""

from itertools import product

import numpy as np
import pytest
import torch
from numba import njit

from widenet.kernels.compiled_products import (
    add_direct_gradient,
    fill_logits,
    fill_weight_gradient,
    product_routine,
)

pytestmark = pytest.mark.skipif(not product_routine(), reason="torch exports no sgemm here")
SHAPES = [shape for shape in product([1, 2, 7, 256], [1, 3, 8, 600], [1, 2, 17, 511]) if shape[0] > 1]
"""Examples, units of the hidden layer, units of a tile. Nobody multiplies for a single example."""


@pytest.fixture(scope="module")
def products():
    @njit
    def three(routine, direct_EH, weight_TH, delta_ET, logits_ET, total_EH, gradient_TH):
        fill_logits(routine, direct_EH, weight_TH, logits_ET)
        add_direct_gradient(routine, delta_ET, weight_TH, total_EH)
        fill_weight_gradient(routine, delta_ET, direct_EH, gradient_TH)

    return three


@pytest.mark.parametrize(("examples", "hidden", "units"), SHAPES)
def test_they_have_the_bits_of_torchs(examples, hidden, units, products):
    generator = torch.Generator().manual_seed(examples + hidden + units)
    shapes = (examples, hidden), (units, hidden), (examples, units), (examples, hidden)
    direct_EH, weight_TH, delta_ET, total_EH = (torch.randn(shape, generator=generator) for shape in shapes)
    expected = direct_EH @ weight_TH.T, total_EH.clone().addmm_(delta_ET, weight_TH), delta_ET.T @ direct_EH
    found = torch.full_like(delta_ET, torch.nan), total_EH, torch.full_like(weight_TH, torch.nan)
    arrays = [tensor.numpy() for tensor in (direct_EH, weight_TH, delta_ET, *found)]
    products(np.uint64(product_routine()), *arrays)
    assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True] * 3
