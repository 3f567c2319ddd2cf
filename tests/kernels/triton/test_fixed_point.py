"""Fixed-point sums: the integers of the definition."""

import pytest
import torch

from widenet.kernels import fixed_point
from widenet.kernels.triton.fixed_point import fixed_sum


def by_definition(terms, scales):
    return sum(fixed_point.to_fixed(term, scales) for term in terms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0, 3), (13,), (5, 211), (1031, 2)], ids=str)
def test_integers_are_those_of_the_definition(shape, dtype, device):
    generator = torch.Generator().manual_seed(0)
    terms = [torch.randn(shape, generator=generator, dtype=dtype) * 10.0**power for power in (-3, 0, 4)]
    scales = fixed_point.scales_for(
        torch.stack([fixed_point.peaks_of(term) for term in terms]).amax(dim=0), len(terms)
    )
    found = fixed_sum([term.to(device) for term in terms], scales.to(device)).cpu()
    assert found.dtype == torch.int64
    assert torch.equal(found, by_definition(terms, scales))


def test_a_term_that_is_not_contiguous_is_read_as_it_is(device):
    term = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).T
    scales = fixed_point.scales_for(fixed_point.peaks_of(term), 2)
    found = fixed_sum([term.to(device)] * 2, scales.to(device)).cpu()
    assert torch.equal(found, by_definition([term, term], scales))


def test_exact_sums_take_these_integers(device):
    terms = [torch.tensor([[1e8, 0.1]]), torch.tensor([[1.0, 0.1]]), torch.tensor([[-1e8, 0.1]])]
    found = fixed_point.exact_sum([term.to(device) for term in terms]).cpu()
    assert found[0, 0].item() == 1.0
