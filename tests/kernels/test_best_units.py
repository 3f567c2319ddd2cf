"""Logits, the best units and the divisors of a softmax by the native library, against their definitions."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch

from tests.rows import wide_top_k
from widenet.kernels import best_units, reference
from widenet.kernels.best_units import NativeTopK, Query, Units, quantized, quantized_queries
from widenet.sparse import SparseBatch


@pytest.fixture(params=["native", "portable"])
def rounding(request, monkeypatch):
    """Both ways to round: whether additions and multiplications are fused."""
    monkeypatch.setattr(best_units, "chosen_bits", lambda: request.param)


def case(seed):
    """Vectors of examples and units, what units multiply and add, and whether they are directions."""
    random = np.random.default_rng(seed)
    num, units, inner = random.integers(1, 70), random.integers(1, 90), random.integers(1, 150)
    generator = torch.Generator().manual_seed(seed)
    direct_EH, vector_TH = (torch.randn(rows, inner, generator=generator) for rows in (num, units))
    vector_TH[random.integers(units)] *= random.choice([1.0, 0.0, 1e-20])
    factor_T, bias_T = (
        torch.randn(units, generator=generator) if random.random() < 0.5 else None for _ in range(2)
    )
    return direct_EH, vector_TH, factor_T, bias_T, bool(factor_T is None and random.random() < 0.5)


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("seeds", [range(250), range(250, 500)])
def test_logits_are_those_of_the_definition_in_float64(seeds):
    for seed in seeds:
        direct_EH, vector_TH, factor_T, bias_T, directions = case(seed)
        units = Units(vector_TH, range(len(vector_TH)), factor_T, bias_T, directions)
        vectors, largest = vector_TH.double(), direct_EH.double().abs() @ vector_TH.double().abs().T
        length_T1 = vectors.norm(dim=1, keepdim=True)
        scale_T = torch.where(length_T1 > 1e-12, 1 / length_T1, 0.0)[:, 0] if directions else torch.ones(())
        scale_T = scale_T if factor_T is None else factor_T.double()
        expected = direct_EH.double() @ vectors.T * scale_T + (0 if bias_T is None else bias_T.double())
        error = (best_units.logits(Query.of(direct_EH), units) - expected).abs()
        bound = 2e-7 * (vector_TH.shape[1] + 8) * (largest * scale_T.abs() + expected.abs()) + 1e-30
        assert bool((error <= bound).all()), seed


@pytest.mark.parametrize("num", [1, 2, 8, 9, 63, 64, 65])
@pytest.mark.parametrize("inner", [1, 33, 2100])
def test_portable_logits_are_sums_in_the_order_of_the_columns(num, inner, monkeypatch):
    monkeypatch.setattr(best_units, "chosen_bits", lambda: "portable")
    random = np.random.default_rng(num)
    direct_EH = random.standard_normal((num, inner), np.float32)
    vector_TH, bias_T = random.standard_normal((77, inner), np.float32), random.random(77, np.float32)
    sums_ET = np.zeros((num, 77), np.float32)
    for h in range(inner):
        sums_ET += direct_EH[:, h, None] * vector_TH[:, h]
    units = Units(torch.from_numpy(vector_TH), range(77), bias_T=torch.from_numpy(bias_T))
    found = best_units.logits(Query.of(torch.from_numpy(direct_EH)), units)
    assert found.numpy().tobytes() == (sums_ET + bias_T).tobytes()


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("inner", [1, 64, 1023, 1025, 5000])
def test_logits_in_8_bits_have_the_bits_of_the_definition(inner):
    generator = torch.Generator().manual_seed(inner)
    direct_EH, vectors = (torch.randn(rows, inner, generator=generator) for rows in (33, 50))
    direct_EH[3] = direct_EH[3].sign() * 2  # whole numbers of 127 and -127
    vectors[7] = 1.0
    wide = torch.zeros(50, inner + 3, dtype=torch.int8)
    wide[:, :inner], factor_T = quantized(vectors)
    bias_T = torch.randn(50, generator=generator)
    units = Units(wide[:, :inner], range(50), factor_T, bias_T)
    query_EH, scale_E = quantized_queries(direct_EH)
    exact_ET = query_EH.long() @ wide[:, :inner].long().T
    expected = exact_ET.float() * factor_T * scale_E[:, None] + bias_T
    assert torch.equal(best_units.logits(Query.of(direct_EH, in_8_bits=True), units), expected)


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("num", [1, 8, 40])
def test_ranked_shards_give_the_best_units_and_the_sums_of_their_logits(num, threads):
    generator = torch.Generator().manual_seed(num)
    direct_EH, vector_LH = (torch.randn(rows, 20, generator=generator) for rows in (num, 3001))
    lists = [sorted({e, 7 * e, 300, 2999}) if e % 2 == 0 else [] for e in range(num)]
    excluded = SparseBatch.from_lists(lists)
    barred_L = torch.rand(3001, generator=generator) < 0.2
    query, shards, parts = Query.of(direct_EH), [], []
    for shard in range(4):
        own = vector_LH[shard::4].contiguous()
        shards.append(Units(own, range(shard, 3001, 4), directions=True))
        parts.append(best_units.logits(query, shards[-1]))
    searches = [NativeTopK(9, torch.full((num,), -torch.inf)) for _ in range(threads)]
    peak_SE, total_SE = torch.full((4, num), -torch.inf), torch.zeros(4, num, dtype=torch.float64)
    best_units.rank(query, shards, searches, SparseBatch.from_lists(lists), barred_L, peak_SE, total_SE)
    keys_EN = torch.cat([search.result() for search in searches], dim=1)
    found, units_EK = reference.unpacked(keys_EN.topk(9, dim=1).values)
    logits_EL = torch.empty(num, 3001)
    for shard, own in enumerate(parts):
        logits_EL[:, shard::4] = own
        peak_E, total_E = torch.full((num,), -torch.inf), torch.zeros(num, dtype=torch.float64)
        reference.add_softmax_sum(own, peak_E, total_E)
        assert torch.equal(peak_SE[shard], peak_E)
        np.testing.assert_allclose(total_SE[shard], total_E, rtol=1e-14)
    logits_EL[:, barred_L] = -torch.inf
    expected, units = wide_top_k(logits_EL, excluded, 9)
    assert torch.equal(found, expected)
    assert torch.equal(units_EK, units)


def best_of_shards(threads):
    generator = torch.Generator().manual_seed(5)
    direct_EH, vector_LH = (torch.randn(rows, 30, generator=generator) for rows in (40, 4000))
    shards = [Units(vector_LH[shard::4].contiguous(), range(shard, 4000, 4)) for shard in range(4)]
    searches = [NativeTopK(5, torch.full((40,), -torch.inf)) for _ in range(threads)]
    best_units.rank(Query.of(direct_EH), shards, searches)
    return torch.cat([search.result() for search in searches], dim=1).topk(5, dim=1).values.tolist()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own_and_gives_the_same():
    here = best_of_shards(3)
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert [*pool.map(best_of_shards, [1, 2, 3])] == [here] * 3
    assert best_of_shards(3) == here


@pytest.mark.parametrize("deviation", [0, 1, 10, 1000])
@pytest.mark.parametrize("width", [1, 5, 255, 256, 257, 5125])
def test_sums_of_a_softmax_are_those_of_the_definition_and_close_to_float64(width, deviation):
    logits_ET = torch.randn(20, width, generator=torch.Generator().manual_seed(0)) * deviation
    logits_ET[3] = -200 * torch.rand(width, generator=torch.Generator().manual_seed(1))
    logits_ET[4, width // 2], logits_ET[5, 0] = torch.nan, torch.inf
    logits_ET[6], logits_ET[7, :-1] = -torch.inf, -torch.inf
    found = []
    for add, size in (
        (best_units.add_softmax_sum, 1000),
        (best_units.add_softmax_sum, width),
        (reference.add_softmax_sum, width),
    ):
        peak_E, total_E = torch.full((20,), -torch.inf), torch.zeros(20).double()
        for tile_ET in logits_ET.split(size, dim=1):
            add(tile_ET, peak_E, total_E)
        found.append((peak_E, total_E))
    (by_tiles_E, tiles_E), (peak_E, total_E), (other_E, expected_E) = found
    np.testing.assert_array_equal(peak_E, other_E)
    np.testing.assert_allclose(total_E, expected_E, rtol=1e-14)  # float64's exponentials between pieces
    assert torch.equal(by_tiles_E[8:], logits_ET[8:].amax(dim=1))
    exact_E = torch.exp(logits_ET[8:].double() - by_tiles_E[8:].double()[:, None]).sum(dim=1)
    np.testing.assert_allclose(tiles_E[8:], exact_E, rtol=2.5e-7)
