"""A shard ranked in one compiled call: to the bit what its parts give one after another."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from widenet.kernels import reference
from widenet.kernels.compiled_products import product_routine
from widenet.kernels.compiled_ranking import NO_SUMS, Units, rank
from widenet.kernels.compiled_search import RunningTopK
from widenet.kernels.running_top_k import unpacked
from widenet.sparse import SparseBatch

pytestmark = pytest.mark.skipif(not product_routine(), reason="torch exports no sgemm here")
ROWS, LEAST, K = 64, 16, 5


def made(num, inner, units):
    """Incoming vectors in whole blocks, the units' vectors and their biases."""
    generator = torch.Generator().manual_seed(num + inner + units)
    direct_EH = torch.randn(-(-num // ROWS) * ROWS, inner, generator=generator)
    return direct_EH, torch.randn(units, inner, generator=generator), torch.randn(units, generator=generator)


def tiles(num, direct_EH, weight_TH, bias_T, starts):
    """The logits of each tile, by torch."""
    for start, stop in pairwise(starts):
        missing = max(0, LEAST - (stop - start))
        weight, bias = pad(weight_TH[start:stop], (0, 0, 0, missing)), pad(bias_T[start:stop], (0, missing))
        blocks = [torch.addmm(bias, block, weight.T) for block in torch.split(direct_EH, ROWS)]
        yield torch.cat(blocks)[:num, : stop - start].contiguous()


@pytest.mark.parametrize("starts", [[0, 3], [0, 256, 259], [0, 100, 200, 230]])
@pytest.mark.parametrize("inner", [1, 7, 64, 300])
@pytest.mark.parametrize("num", [1, 64, 150])
def test_it_has_the_bits_of_products_sums_and_searches(num, inner, starts):
    direct_EH, weight_TH, bias_T = made(num, inner, starts[-1])
    search, shape = RunningTopK(K, torch.full((num,), -torch.inf)), (len(starts) - 1, num)
    sums = np.full(shape, np.nan, np.float32), np.full(shape, np.nan)
    numbers = range(3, 3 + 8 * starts[-1], 8)
    rank(direct_EH, ROWS, LEAST, Units(weight_TH, bias_T, starts, numbers, 0), search, sums)
    logits = [*tiles(num, direct_EH, weight_TH, bias_T, starts)]
    for tile, logits_ET in enumerate(logits):
        peak_E, sum_E = reference.softmax_sum(logits_ET)
        assert np.array_equal(sums[0][tile], peak_E.numpy())
        assert np.array_equal(sums[1][tile], sum_E.numpy())
    expected, units = reference.wide_top_k(torch.cat(logits, dim=1), None, K)
    found, found_units = unpacked(search.result())
    number = expected.shape[1]
    assert torch.equal(found[:, :number], expected)
    assert torch.equal(found_units[:, :number], torch.where(units < 0, -1, 3 + 8 * units))


def test_hidden_units_are_not_found_but_have_their_share():
    direct_EH, weight_TH, bias_T = made(150, 20, 700)
    rows = [sorted({e % 700, *range(0, 10 * e, 13)} & set(range(700))) for e in range(149)] + [[*range(700)]]
    hidden, barred_R = SparseBatch.from_lists(rows), torch.arange(1000) % 7 == 3
    (logits_ET,) = tiles(150, direct_EH, weight_TH, bias_T, [0, 700])
    masked = logits_ET.masked_fill(barred_R[300:][:700], -torch.inf)
    expected, units = reference.wide_top_k(masked, hidden, K)
    search, sums = (
        RunningTopK(K, torch.full((150,), -torch.inf)),
        (np.zeros((1, 150), np.float32), np.zeros((1, 150))),
    )
    entries = hidden.indptr, hidden.indices.long() + 300
    rank(
        direct_EH,
        ROWS,
        LEAST,
        Units(weight_TH, bias_T, [0, 700], range(700), 300, *entries, barred_R),
        search,
        sums,
    )
    found, found_units = unpacked(search.result())
    assert torch.equal(found, expected)
    assert torch.equal(found_units, units)
    assert np.array_equal(sums[1][0], reference.softmax_sum(logits_ET)[1].numpy())


def test_a_search_goes_on_in_another_shard():
    direct_EH, weight_TH, bias_T = made(64, 30, 900)
    search = RunningTopK(K, torch.full((64,), -torch.inf))
    for first in (1, 0):
        own = weight_TH[first::2].contiguous(), bias_T[first::2].contiguous()
        rank(direct_EH, ROWS, LEAST, Units(*own, [0, 450], range(first, 900, 2), 0), search, NO_SUMS)
    found, found_units = unpacked(search.result())
    expected = torch.addmm(bias_T, direct_EH, weight_TH.T).topk(K)
    assert torch.equal(found_units, expected.indices)
    torch.testing.assert_close(found, expected.values)


def test_of_equal_logits_in_two_shards_the_lower_units_win():
    direct_EH, search = made(64, 30, 1)[0], RunningTopK(K, torch.full((64,), -torch.inf))
    for first in (1, 0):
        own = Units(torch.zeros(450, 30), None, [0, 450], range(first, 900, 2), 0)
        rank(direct_EH, ROWS, LEAST, own, search, NO_SUMS)
    assert unpacked(search.result())[1].tolist() == [[0, 1, 2, 3, 4]] * 64


def test_without_biases_the_logits_are_products():
    direct_EH, weight_TH, _ = made(64, 30, 90)
    search = RunningTopK(90, torch.full((64,), -torch.inf))
    rank(direct_EH, ROWS, LEAST, Units(weight_TH, None, [0, 90], range(90), 0), search, NO_SUMS)
    assert torch.equal(unpacked(search.result())[0], (direct_EH @ weight_TH.T).sort(descending=True).values)
