"""Exact sums on a device: the bits of the definition."""

import math

import pytest
import torch

from widenet.kernels import fixed_point

SHAPES = [(), (0, 3), (13,), (1031, 2), (3, 1500), (2, 3, 7)]


def by_definition(terms, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fixed_point, "triton_runs", lambda _: False)
        patch.setattr(fixed_point, "library_runs", lambda _: False)
        return fixed_point.exact_sum(terms)


def bits(tensor):
    return tensor.cpu().view({4: torch.int32, 8: torch.int64}[tensor.element_size()]).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_have_the_bits_of_the_definition(shape, dtype, device, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    terms = [torch.randn(shape, generator=generator, dtype=dtype) * 10.0**power for power in (-3, 0, 4)]
    expected = by_definition(terms, monkeypatch)
    for given in ([term.to(device) for term in terms], torch.stack(terms).to(device)):
        found = fixed_point.exact_sum(given)
        assert (found.shape, found.dtype) == (expected.shape, dtype)
        assert bits(found) == bits(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strange_numbers_are_those_of_the_definition(dtype, device, monkeypatch):
    tiny, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    rows = [
        [0.0, -0.0],
        [tiny, tiny / 4],
        [large, -large / 2],
        [math.inf, 1.0],
        [1.0, -math.inf],
        [math.nan, math.inf],
        [1e8, 0.1],
    ]
    terms = [torch.tensor(rows, dtype=dtype), torch.tensor(rows[::-1], dtype=dtype)]
    assert bits(fixed_point.exact_sum([term.to(device) for term in terms])) == bits(
        by_definition(terms, monkeypatch)
    )


def test_terms_that_are_not_contiguous_are_read_as_they_are(device, monkeypatch):
    term = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).T
    found = fixed_point.exact_sum([term.to(device)] * 2)
    assert bits(found) == bits(by_definition([term.contiguous()] * 2, monkeypatch))
