"""Operands rounded to bfloat16: rounded once, multiplied and summed in float32, with results in float32,
on every device.
"""

import pytest
import torch

from tests.simulated.device import DEVICE, simulated
from widenet.kernels.cuda_products import cuda_products
from widenet.kernels.reference import rounded
from widenet.model.operands import add_product, fill_product, matrix_product


@pytest.fixture(params=["cpu", "cuda", "simulated"])
def device(request):
    """Each kind of device, as a training multiplies there; a simulated one refuses what CUDA refuses."""
    if request.param == "simulated":
        with simulated(), cuda_products():
            yield DEVICE
        return
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with cuda_products():
        yield torch.device(request.param)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_operands_have_the_values_of_bfloat16_and_its_type_where_products_take_it(device):
    values = numbers(50)
    operand = rounded(values.to(device))
    assert operand.dtype == (torch.float32 if device.type == "cpu" else torch.bfloat16)
    assert operand.float().cpu().equal(values.bfloat16().float())
    assert not operand.float().cpu().equal(values)


@pytest.mark.parametrize("shape", [(3, 2, 5), (70, 300, 65), (1, 1, 1), (4, 0, 3)])
def test_results_are_as_near_to_the_products_of_rounded_operands_as_float32_is(shape, device):
    """A result that was rounded to bfloat16 would be off by 2^-9 of its size."""
    rows, inner, columns = shape
    left, right = numbers(rows, inner, seed=1), numbers(columns, inner, seed=2).T
    true = left.bfloat16().double() @ right.bfloat16().double()
    left, right = rounded(left.to(device)), rounded(right.to(device))
    near = {"rtol": 2e-6, "atol": 1e-6 * inner}
    result, total = torch.empty(rows, columns, device=device), torch.ones(rows, columns, device=device)
    fill_product(result, left, right)
    add_product(total, left, right)
    product = matrix_product(left, right)
    assert {result.dtype, total.dtype, product.dtype} == {torch.float32}
    for found, expected in ((result, true), (product, true), (total, 1 + true)):
        torch.testing.assert_close(found.cpu().double(), expected, **near)


def test_what_is_added_to_a_total_keeps_digits_that_bfloat16_has_not(device):
    total, one = torch.full((1, 1), 1000.0, device=device), rounded(torch.ones(1, 1, device=device))
    for _ in range(3):
        add_product(total, one, one)
    assert total.item() == 1003.0
