"""Operands in bfloat16: rounded once, their products summed in float32, on devices with instructions for it and without."""

import pytest
import torch

from widenet.model.operands import add_product, fill_product, rounded


@pytest.fixture(params=[True, False], ids=["instructions", "none"])
def has_instructions(request, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: request.param)
    return request.param


def test_operands_have_the_values_of_bfloat16_everywhere_and_its_type_where_it_is_fast(has_instructions):
    values = torch.randn(50, generator=torch.Generator().manual_seed(0))
    operand = rounded(values)
    assert operand.dtype == (torch.bfloat16 if has_instructions else torch.float32)
    assert operand.float().equal(values.bfloat16().float())
    assert not operand.float().equal(values)


@pytest.mark.parametrize("shape", [(3, 2, 5), (70, 300, 65), (1, 1, 1), (4, 0, 3)])
@pytest.mark.usefixtures("has_instructions")
def test_products_of_rounded_operands_are_right(shape):
    generator = torch.Generator().manual_seed(1)
    rows, inner, columns = shape
    left, right = rounded(torch.randn(rows, inner, generator=generator)), rounded(torch.randn(columns, inner, generator=generator)).T
    true = (left.double() @ right.double()).float()
    result = torch.empty(rows, columns)
    fill_product(result, left, right)
    torch.testing.assert_close(result, true, rtol=2**-8, atol=1e-5)
    add_product(result, left, right)
    torch.testing.assert_close(result, 2 * true, rtol=2**-8, atol=2e-5)


@pytest.mark.usefixtures("has_instructions")
def test_what_is_added_to_a_float32_total_keeps_digits_that_bfloat16_has_not():
    total, one = torch.full((1, 1), 1000.0), rounded(torch.ones(1, 1))
    for _ in range(3):
        add_product(total, one, one)
    assert total.item() == 1003.0
