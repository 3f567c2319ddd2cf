"""Exact sums: one result for every order, as near the true sum as documented."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.kernels import fixed_point
from widenet.kernels.fixed_point import exact_sum, sum_by

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def allowed(terms):
    """The documented error of a float32 sum, and its last rounding."""
    exact = sum(map(Fraction, terms))
    return (
        abs(exact) * Fraction(1, 2**23)
        + Fraction(len(terms) ** 2, 2**60) * Fraction(max(map(abs, terms)))
        + Fraction(1, 2**149)
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_sum_is_the_true_one_within_the_documented_error_and_has_the_same_bits_in_any_order(
    terms, random
):
    exact = sum(map(Fraction, terms))
    found = exact_sum([torch.tensor([term]) for term in terms])
    if abs(exact) < Fraction(2) ** 127:
        assert abs(Fraction(found.item()) - exact) <= allowed(terms)
    shuffled = random.sample(terms, len(terms))
    assert torch.equal(
        exact_sum([torch.tensor([term]) for term in shuffled]).view(torch.int32), found.view(torch.int32)
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_keeps_its_digits_beside_one_of_any_magnitude_or_of_what_is_no_number(bad):
    term = torch.tensor([[1.0, 2.0**-20], [1e30, -1e30], [1.0, 1.0]])
    found = exact_sum([term, term.index_put((torch.tensor(2), torch.tensor(0)), torch.tensor(bad))])
    assert found[:2].tolist() == [[2.0, 2.0**-19], (2 * term[1]).tolist()]
    assert found[2].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sums_of_groups_are_the_true_ones_in_any_order_and_beside_any_magnitude(dtype):
    random = torch.Generator().manual_seed(3)
    values = torch.randn(500, generator=random, dtype=dtype) * 10.0 ** torch.randint(
        -6, 7, (500,), generator=random
    )
    groups = torch.randint(0, 7, (500,), generator=random)
    values[groups == 5] *= 1e25
    found = sum_by(values, groups, 8)
    for group in range(8):
        mine = values[groups == group].tolist()
        true, peak = sum(map(Fraction, mine)), max(map(abs, mine), default=0.0)
        rounding = abs(true) * Fraction(torch.finfo(dtype).eps)
        assert abs(Fraction(found[group].item()) - true) <= rounding + len(values) * Fraction(
            peak
        ) * Fraction(1, 2**51)
    order = torch.randperm(500, generator=random)
    assert torch.equal(sum_by(values[order], groups[order], 8), found)


@pytest.mark.parametrize("num", [0, 2, 500])
def test_zeros_behind_the_values_change_no_bit_where_they_are_not_counted(num):
    random = torch.Generator().manual_seed(3)
    values = torch.randn(num, generator=random, dtype=torch.float64) * 10.0 ** torch.randint(
        -12, 1, (num,), generator=random
    )
    groups = torch.randint(0, 7, (num,), generator=random)
    padded = (
        torch.cat([values, torch.zeros(4000, dtype=torch.float64)]),
        torch.cat([groups, torch.zeros(4000, dtype=torch.int64)]),
    )
    expected = sum_by(values, groups, 8)
    assert torch.equal(sum_by(*padded, 8, num), expected)
    assert num < 500 or not torch.equal(sum_by(*padded, 8), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 1, 5, 200])
@pytest.mark.parametrize("number", [1, 2, 17])
@pytest.mark.parametrize("is_vector", [False, True])
def test_a_compiled_sum_has_torchs_bits_also_of_what_is_no_number(
    is_vector, number, width, dtype, monkeypatch
):
    generator = torch.Generator().manual_seed(width)
    terms = [
        torch.randn(19, width, generator=generator, dtype=dtype).mT.contiguous().mT for _ in range(number)
    ]
    tiny, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    for term in terms[:2] if width else []:
        term[:6, 0] = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, tiny / 2, -large])
        term[6:12] *= torch.tensor([tiny, large / 9, 1e-30, 1e30, 0.0, -0.0])[:, None]
    if is_vector:
        terms = [term[:, :1].reshape(-1) for term in terms]
    found = exact_sum(terms)
    monkeypatch.setattr(fixed_point, "library_runs", lambda _: False)
    expected = exact_sum(terms)
    assert found.dtype == dtype
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(0.0), expected.nan_to_num(0.0))
    assert torch.equal(found.signbit()[~found.isnan()], expected.signbit()[~found.isnan()])
