"""Products by blocks: the truth, forward and backward, and the same bits for any number of threads."""

import pytest
import torch

from widenet.model.product import Blocks, Factor, product
from widenet.parallel.exchange import Exchange

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
    result = product(values, Factor([weight], Blocks(Exchange(8, num_threads), "", half)))
    result.backward(gradient)
    return result.detach(), values.grad, weight.grad


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_and_its_gradients_are_the_true_ones_of_operands_as_they_are_rounded(
    shape, transposed, half
):
    given = operands(*shape, transposed)
    values, weight, gradient = ((each.bfloat16() if half else each).double() for each in given)
    true = values @ weight.T, gradient @ weight, gradient.T @ values
    for result, expected in zip(found(*given, half=half), true, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, expected.float(), rtol=1e-5, atol=1e-3)
