"""A shard in 8 bits ranked in one compiled call: to the bit what its parts give one after another."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from widenet.kernels import reference
from widenet.kernels.compiled_quantized import ROWS, Queries, multiplies_bytes, rank_quantized
from widenet.kernels.compiled_ranking import NO_SUMS, Units
from widenet.kernels.compiled_search import RunningTopK
from widenet.kernels.quantized import quantized, quantized_logits
from widenet.kernels.running_top_k import unpacked
from widenet.sparse import SparseBatch

pytestmark = pytest.mark.skipif(
    not multiplies_bytes(), reason="Numba compiles for a processor without AVX-512 VNNI"
)
K = 5


def made(num, inner, units):
    """Incoming vectors in whole blocks; the units' numbers, in rows of whole words, factors and biases."""
    generator = torch.Generator().manual_seed(num + inner + units)
    direct_EH = torch.randn(-(-num // ROWS) * ROWS, inner, generator=generator)
    whole_TH, scale_T = quantized(torch.randn(units, inner, generator=generator))
    whole_TH = pad(whole_TH, (0, -inner % 4), value=99)[:, :inner]
    return direct_EH, whole_TH, scale_T, torch.randn(units, generator=generator)


@pytest.mark.parametrize("starts", [[0, 3], [0, 256, 259], [0, 100, 200, 230]])
@pytest.mark.parametrize("inner", [1, 7, 64, 300])
@pytest.mark.parametrize("num", [1, 64, 150])
def test_it_has_the_bits_of_logits_sums_and_searches(num, inner, starts):
    direct_EH, whole_TH, scale_T, bias_T = made(num, inner, starts[-1])
    search, shape = RunningTopK(K, torch.full((num,), -torch.inf)), (len(starts) - 1, num)
    sums = np.full(shape, np.nan, np.float32), np.full(shape, np.nan)
    units = Units(whole_TH, bias_T, starts, range(3, 3 + 8 * starts[-1], 8), 0)
    rank_quantized(Queries.of(direct_EH), units, scale_T, search, sums)
    logits_ET = quantized_logits(direct_EH, whole_TH, scale_T, bias_T)[:num]
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
    direct_EH, whole_TH, scale_T, bias_T = made(150, 20, 700)
    rows = [sorted({e % 700, *range(0, 10 * e, 13)} & set(range(700))) for e in range(149)] + [[*range(700)]]
    hidden, barred_R = SparseBatch.from_lists(rows), torch.arange(1000) % 7 == 3
    logits_ET = quantized_logits(direct_EH, whole_TH, scale_T, bias_T)[:150]
    masked = logits_ET.masked_fill(barred_R[300:][:700], -torch.inf)
    expected, places = reference.wide_top_k(masked, hidden, K)
    search = RunningTopK(K, torch.full((150,), -torch.inf))
    entries = hidden.indptr, hidden.indices.long() + 300
    units = Units(whole_TH, bias_T, [0, 700], range(700), 300, *entries, barred_R)
    rank_quantized(Queries.of(direct_EH), units, scale_T, search, NO_SUMS)
    found, found_units = unpacked(search.result())
    assert torch.equal(found, expected)
    assert torch.equal(found_units, places)


def test_of_equal_logits_in_two_shards_the_lower_units_win():
    direct_EH, search = made(64, 32, 1)[0], RunningTopK(K, torch.full((64,), -torch.inf))
    for first in (1, 0):
        nothing = torch.zeros(450, 32, dtype=torch.int8)
        own = Units(nothing, None, [0, 450], range(first, 900, 2), 0)
        rank_quantized(Queries.of(direct_EH), own, torch.ones(450), search, NO_SUMS)
    assert unpacked(search.result())[1].tolist() == [[0, 1, 2, 3, 4]] * 64
