"""Pruned rows: what is stored, and logits that every implementation computes to the same bits."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from widenet.kernels import compiled_pruned, reference
from widenet.kernels.compiled_pruned import ROWS, queries, rank_pruned
from widenet.kernels.compiled_ranking import NO_SUMS, Units
from widenet.kernels.compiled_search import RunningTopK
from widenet.kernels.pruned import pruned, pruned_logits, widened
from widenet.kernels.ranking_keys import unpacked
from widenet.sparse import SparseBatch

K = 5


def made(num, inner, units, kept):
    """Incoming vectors; the units' columns and numbers, factors and biases."""
    generator = torch.Generator().manual_seed(num + inner + units)
    direct_EH = torch.randn(num, inner, generator=generator)
    column_TK, value_TK = pruned(torch.randn(units, inner, generator=generator), kept)
    factor_T, bias_T = torch.rand(2, units, generator=generator)
    return direct_EH, column_TK, value_TK, factor_T, bias_T


@pytest.mark.parametrize(("columns", "kind"), [(7, torch.uint8), (256, torch.uint8), (300, torch.int16)])
def test_rows_keep_their_largest_numbers(columns, kind):
    rows = torch.randn(40, columns, generator=torch.Generator().manual_seed(0))
    rows[3] = 0
    column, value = pruned(rows, 5)
    assert column.dtype == kind
    assert bool((column.long().diff(dim=1) > 0).all())
    limit = rows.abs().sort(dim=1, descending=True).values[:, 4:5]
    assert torch.equal(widened(column, value, columns), torch.where(rows.abs() >= limit, rows, 0.0))


@pytest.mark.parametrize("kept", [1, 6, 29])
def test_logits_are_those_of_the_dense_rows(kept):
    direct, column, value, factor, bias = made(70, 30, 211, kept)
    found = pruned_logits(direct, column, value, factor, bias)
    dense = direct.double() @ widened(column, value, 30).double().T * factor.double() + bias.double()
    torch.testing.assert_close(found.double(), dense, rtol=1e-5, atol=1e-5)
    assert torch.equal(compiled_pruned.logits(direct, column, value, factor, bias), found)
    assert torch.equal(reference.pruned_logits(direct, column, value, factor, bias), found)


@pytest.mark.parametrize("starts", [[0, 3], [0, 256, 259], [0, 100, 200, 230]])
@pytest.mark.parametrize(("inner", "kept"), [(7, 6), (64, 7), (300, 20)])
@pytest.mark.parametrize("num", [1, 64, 150])
def test_a_ranking_has_the_bits_of_logits_sums_and_searches(num, inner, kept, starts):
    direct_EH, *operands, bias_T = made(num, inner, starts[-1], kept)
    search, shape = RunningTopK(K, torch.full((num,), -torch.inf)), (len(starts) - 1, num)
    sums = np.full(shape, np.nan, np.float32), np.full(shape, np.nan)
    column_TK, value_TK, factor_T = operands
    units = Units(value_TK, bias_T, starts, range(3, 3 + 8 * starts[-1], 8), 0)
    rank_pruned(queries(direct_EH), units, column_TK, factor_T, search, sums)
    logits_ET = reference.pruned_logits(direct_EH, *operands, bias_T)
    for tile, (start, stop) in enumerate(pairwise(starts)):
        peak_E, sum_E = reference.softmax_sum(logits_ET[:, start:stop])
        assert np.array_equal(sums[0][tile], peak_E.numpy())
        assert np.array_equal(sums[1][tile], sum_E.numpy())
    expected, places = reference.wide_top_k(logits_ET, None, K)
    found, found_units = unpacked(search.result())
    number = expected.shape[1]
    assert torch.equal(found[:, :number], expected)
    assert torch.equal(found_units[:, :number], torch.where(places < 0, -1, 3 + 8 * places))


def test_hidden_units_are_not_found():
    direct_EH, column_TK, value_TK, factor_T, bias_T = made(150, 20, 700, 4)
    rows = [sorted({e % 700, *range(0, 10 * e, 13)} & set(range(700))) for e in range(149)] + [[*range(700)]]
    seen, barred_R = SparseBatch.from_lists(rows), torch.arange(1000) % 7 == 3
    logits_ET = reference.pruned_logits(direct_EH, column_TK, value_TK, factor_T, bias_T)
    masked = logits_ET.masked_fill(barred_R[300:][:700], -torch.inf)
    expected, places = reference.wide_top_k(masked, seen, K)
    search = RunningTopK(K, torch.full((150,), -torch.inf))
    units = Units(
        value_TK, bias_T, [0, 700], range(700), 300, seen.indptr, seen.indices.long() + 300, barred_R
    )
    rank_pruned(queries(direct_EH), units, column_TK, factor_T, search, NO_SUMS)
    found, found_units = unpacked(search.result())
    assert torch.equal(found, expected)
    assert torch.equal(found_units, places)


def test_of_equal_logits_in_two_shards_the_lower_units_win():
    search, one = RunningTopK(K, torch.full((ROWS,), -torch.inf)), torch.ones(450)
    for first in (1, 0):
        own = Units(torch.zeros(450, 3), None, [0, 450], range(first, 900, 2), 0)
        column = torch.arange(3, dtype=torch.uint8).repeat(450, 1)
        rank_pruned(queries(torch.ones(ROWS, 32)), own, column, one, search, NO_SUMS)
    assert unpacked(search.result())[1].tolist() == [[0, 1, 2, 3, 4]] * ROWS
