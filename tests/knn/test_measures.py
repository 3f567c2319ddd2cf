"""The exact rule against whole numbers without end; and the bound on a float32 product."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from widenet.knn.neighbours import MEASURES, Part, approach, ceiling, lengths, nearness

RANDOM = np.random.default_rng(2)
PAIRS = [RANDOM.standard_normal((2, 40, 33)).astype(np.float32) * scale for scale in (1, 1e-20, 1e18)]


def whole(measure, query, vector):
    """The product, or minus the squared distance, with all its digits."""
    pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(query, vector, strict=True)]
    return -sum((a - b) ** 2 for a, b in pairs) if measure == "l2" else sum(a * b for a, b in pairs)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("pairs", PAIRS)
def test_the_rule_has_the_digits_that_it_says(measure, pairs):
    found = nearness(measure, *torch.from_numpy(pairs))
    for query, vector, near in zip(*pairs, found.tolist(), strict=True):
        exact = float(whole(measure, query, vector))
        if measure == "cosine":
            exact /= float(
                np.linalg.norm(query.astype(np.float64)) * np.linalg.norm(vector.astype(np.float64))
            )
            assert near == pytest.approx(exact, abs=1e-15)
        else:
            largest = float(np.abs(query.astype(np.float64) * vector).max()) if measure == "dot" else -exact
            assert abs(near - exact) <= 33**2 * 2.0**-60 * largest + 2.0**-52 * abs(exact)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("pairs", [*PAIRS, PAIRS[0] + np.float32(1000), PAIRS[0] * np.float32(1e-38)])
def test_no_vector_is_nearer_than_its_product_allows(measure, pairs):
    queries, vectors = torch.from_numpy(pairs)
    part = Part(measure, range(len(vectors)), vectors)
    longest, shortest = part.extent.tolist()
    direct = approach(measure, queries)
    products = part.products(direct, 0, len(vectors))
    for column in range(len(vectors)):
        near = nearness(measure, queries, vectors[column : column + 1].expand_as(queries))
        most = ceiling(measure, products[:, column], direct, longest, shortest)
        assert bool((near <= most).all())
        if measure != "cosine" and 1e-15 < float(lengths(vectors).max()) < 1e15:
            assert bool((most - near <= 1e-5 * (lengths(queries) + longest) ** 2).all())


@pytest.mark.parametrize("measure", MEASURES)
def test_nothing_is_excluded_where_a_product_may_leave_the_range_of_float32(measure):
    direct, product = torch.ones(1, 3), torch.zeros(1)
    assert ceiling(measure, product, direct, 1e10, 1e-10).isfinite().all()
    assert ceiling(measure, product, direct, 1e38, 1e-10).tolist() == [np.inf]
    assert (ceiling(measure, product, direct, 1.0, 1e-39).tolist() == [np.inf]) == (measure == "cosine")
