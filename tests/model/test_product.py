"""Products by blocks: the truth, forward and backward, and the same bits whoever computes a block."""

from itertools import pairwise

import pytest
import torch

from widenet.model.product import Blocks, Whole, product
from widenet.parallel.local import LocalExchange
from widenet.plan.narrow import edges, num_blocks

SHAPES = [(256, 512, 512), (260, 520, 500), (131, 1030, 70), (1, 3, 2), (0, 4, 3)]


def operands(examples, inputs, units, transposed, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(examples, inputs, generator=generator)
    weight = (
        torch.randn(inputs, units, generator=generator).T
        if transposed
        else torch.randn(units, inputs, generator=generator)
    )
    return values, weight, torch.randn(examples, units, generator=generator)


def found(values, weight, gradient, num_threads=1, half=False):
    """The product and the gradients to both operands."""
    values, weight = values.detach().requires_grad_(), weight.detach().requires_grad_()
    result = product(values, Whole(weight, Blocks(LocalExchange(8, num_threads), 8, "", half)))
    result.backward(gradient)
    return result.detach(), values.grad, weight.grad


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_and_its_gradients_are_the_true_ones(shape, transposed):
    values, weight, gradient = operands(*shape, transposed)
    true = (
        values.double() @ weight.double().T,
        gradient.double() @ weight.double(),
        gradient.double().T @ values.double(),
    )
    for result, expected in zip(found(values, weight, gradient), true, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, expected.float(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_in_bfloat16_they_are_the_true_ones_of_rounded_operands(shape, transposed):
    exact = operands(*shape, transposed)
    values, weight, gradient = (operand.bfloat16().double() for operand in exact)
    true = values @ weight.T, gradient @ weight, gradient.T @ values
    for result, expected in zip(found(*exact, half=True), true, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, expected.float(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_number_of_threads_moves_a_bit(shape, transposed, half):
    arguments = operands(*shape, transposed)
    alone = [result.numpy().tobytes() for result in found(*arguments, half=half)]
    for num_threads in (2, 3):
        assert [result.numpy().tobytes() for result in found(*arguments, num_threads, half)] == alone


def test_the_shapes_above_are_cut_into_several_blocks_and_into_one():
    assert {num_blocks(examples, inputs, units, 8, "cpu") for examples, inputs, units in SHAPES} == {1, 4}
    assert {num_blocks(units, examples, inputs, 8, "cpu") for examples, inputs, units in SHAPES} == {1, 7, 8}


def test_every_block_is_the_product_of_its_own_rows():
    values, weight, gradient = operands(260, 520, 500, transposed=False)
    pairs = [(values, weight.T), (gradient, weight), (gradient.T, values)]
    for result, (left, right) in zip(found(values, weight, gradient), pairs, strict=True):
        bounds = edges(len(left), num_blocks(len(left), left.shape[1], right.shape[1], 8, "cpu"))
        assert len(bounds) > 2
        assert result.equal(torch.cat([left[start:stop] @ right for start, stop in pairwise(bounds)]))


@pytest.mark.parametrize("asked", ["values", "weight"])
def test_only_the_gradients_that_are_asked_for_are_computed(asked):
    values, weight, _ = operands(5, 4, 3, transposed=False)
    {"values": values, "weight": weight}[asked].requires_grad_()
    product(values, Whole(weight, Blocks(LocalExchange(1), 1, ""))).sum().backward()
    assert [values.grad is not None, weight.grad is not None] == [asked == "values", asked == "weight"]
