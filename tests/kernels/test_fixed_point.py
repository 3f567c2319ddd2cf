"""Exact sums: one result for every order, as near the true sum as documented."""

import itertools
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.kernels import exact_sum

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def allowed(terms):
    """The documented error of a float32 sum, and its last rounding."""
    exact = sum(map(Fraction, terms))
    return abs(exact) * Fraction(1, 2**23) + Fraction(len(terms) ** 2, 2**60) * Fraction(max(map(abs, terms))) + Fraction(1, 2**149)


@settings(max_examples=300, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_sum_is_the_true_one_within_the_documented_error_and_has_the_same_bits_in_any_order(terms, random):
    exact = sum(map(Fraction, terms))
    found = exact_sum([torch.tensor([term]) for term in terms])
    if abs(exact) < Fraction(2) ** 127:
        assert abs(Fraction(found.item()) - exact) <= allowed(terms)
    shuffled = random.sample(terms, len(terms))
    assert torch.equal(exact_sum([torch.tensor([term]) for term in shuffled]).view(torch.int32), found.view(torch.int32))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([1e8, 1.0, -1e8], 1.0),
        ([2.0**30, 2.0**-20, -(2.0**30)], 2.0**-20),
        ([1.0, -1.0], 0.0),
        ([0.0, -0.0], 0.0),
        ([3e38, -3e38, 2.0**100], 2.0**100),
        ([1e-45, 1e-45], 2.8e-45),
        ([0.1], 0.1),
        ([0.1] * 10, 1.0),
        ([3e38] * 2, float("inf")),
    ],
)
def test_known_sums_come_out_where_plain_addition_would_lose_them(terms, expected):
    for order in set(itertools.permutations(terms)) if len(terms) < 5 else [terms]:
        assert exact_sum([torch.tensor(term) for term in order]).item() == torch.tensor(expected).item()


def test_many_columns_share_one_scale_and_keep_their_shape():
    generator = torch.Generator().manual_seed(0)
    terms = [torch.randn(13, 7, generator=generator) * 10.0 ** torch.randint(-4, 5, (13, 7), generator=generator) for _ in range(17)]
    found = exact_sum(terms)
    assert found.shape == (13, 7)
    for row, column in itertools.product(range(13), range(7)):
        exact = sum(Fraction(term[row, column].item()) for term in terms)
        peak = max(float(term.abs().max()) for term in terms)
        assert abs(Fraction(found[row, column].item()) - exact) <= abs(exact) / 2**23 + Fraction(17**2, 2**60) * Fraction(peak)


def test_the_sum_of_float64_terms_is_float64():
    found = exact_sum([torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0**-50, dtype=torch.float64)])
    assert found.dtype == torch.float64
    assert found.item() == 1.0 + 2.0**-50


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_undefined_number_makes_the_whole_sum_undefined(bad):
    terms = [torch.ones(3, 2), torch.ones(3, 2)]
    terms[1][2, 0] = bad
    assert exact_sum(terms).isnan().all()


def test_the_terms_are_left_as_they_were():
    terms = [torch.tensor([1.5]), torch.tensor([2.5])]
    exact_sum(terms)
    assert [term.item() for term in terms] == [1.5, 2.5]


def test_a_sum_without_numbers_is_empty():
    assert exact_sum([torch.zeros(0, 3), torch.zeros(0, 3)]).shape == (0, 3)
