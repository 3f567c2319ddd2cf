"""Numbers in 8 bits: how far they move, and that they are held exactly."""

import pytest
import torch

from widenet.kernels.best_units import dequantized, quantized, quantized_queries


def drawn(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_no_number_moves_by_more_than_half_the_scale(size):
    rows = drawn(50, 37) * size
    whole, scale = quantized(rows)
    assert whole.dtype == torch.int8
    apart = (rows.double() - whole.double() * scale.double()[:, None]).abs()
    assert bool((apart <= scale.double()[:, None] * (0.5 + 1e-6)).all())
    assert bool((whole.abs().amax(dim=1) == 127).all())


@pytest.mark.parametrize("size", [1.0, 1e-36, 1e-38, 1e-41])
def test_rounding_again_changes_nothing(size):
    """Not even where the scale would have few digits: such rows become zeros."""
    whole, scale = quantized(drawn(500, 20) * size)
    assert bool((scale == 0).all()) == (size < 1e-36)
    assert not whole[scale == 0].any()
    again, same_scale = quantized(dequantized(whole, scale))
    assert torch.equal(again, whole)
    assert torch.equal(same_scale, scale)


def test_rows_of_zeros_and_numbers_that_are_none_give_zeros():
    rows = torch.tensor([[0.0, 0.0], [1.0, torch.inf], [torch.nan, 1.0]])
    assert quantized_queries(rows)[0].tolist() == [[0, 0]] * 3
    assert quantized(rows[:1])[1].tolist() == [0]
