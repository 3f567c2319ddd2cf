"""The k best, met tile by tile, against a sort of everything and the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows import wide_top_k
from widenet.kernels import best_units
from widenet.kernels.reference import RunningTopK, keys, unpacked
from widenet.sparse import SparseBatch


@pytest.fixture(params=[RunningTopK, best_units.NativeTopK], ids=["torch", "native"], scope="module")
def search(request):
    """An implementation; the native one has little room, so that it chooses often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_units, "_BESIDE", 1)
        yield request.param


def no_floor(num_examples):
    return torch.full((num_examples,), -torch.inf)


def by_tiles(search, logits_EL, k, tile):
    running = search(k, no_floor(len(logits_EL)))
    for start in range(0, logits_EL.shape[1], tile):
        tile_ET = logits_EL[:, start : start + tile]
        running.add(tile_ET, range(start, start + tile_ET.shape[1]))
    return unpacked(running.result())


def by_hand(row, k):
    """The best of one row in plain Python: logits descending, the lower unit first."""
    best = sorted((-logit, unit) for unit, logit in enumerate(row) if logit > float("-inf"))[:k]
    missing = k - len(best)
    return [-logit for logit, _ in best] + [float("-inf")] * missing, [unit for _, unit in best] + [
        -1
    ] * missing


@pytest.mark.parametrize("tile", [1, 7, 64, 1000])
@pytest.mark.parametrize("k", [1, 5, 41, 100])
def test_tiles_of_any_size_give_what_the_reference_gives(search, k, tile):
    logits_EL = torch.randn(11, 413, generator=torch.Generator().manual_seed(0))
    rows = [[e, 2 * e, 40] if e % 3 else [] for e in range(9)] + [list(range(380)), list(range(413))]
    excluded = SparseBatch.from_lists(rows)
    expected, units = wide_top_k(logits_EL, excluded, k)
    masked = logits_EL.clone()
    masked[excluded.example_of_entry(), excluded.indices] = -torch.inf
    found, found_units = by_tiles(search, masked, k, tile)
    assert torch.equal(found, expected)
    assert torch.equal(found_units, units)
    assert found_units[10].tolist() == [-1] * k


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, 2**-149, float("-inf")]), min_size=1, max_size=90),
    st.integers(1, 7),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_those_who_share_a_floor_find_the_best_of_all_in_whatever_order_they_work(
    search, row, k, tile, chance
):
    floor_E, cut = no_floor(1), chance.randint(0, len(row))
    waiting = [
        [(start, row[start : min(start + tile, stop)]) for start in range(first, stop, tile)]
        for first, stop in ((0, cut), (cut, len(row)))
    ]
    running = [search(k, floor_E) for _ in waiting]
    while any(waiting):
        chosen = chance.choice([part for part, tiles in enumerate(waiting) if tiles])
        start, logits = waiting[chosen].pop(0)
        running[chosen].add(torch.tensor([logits]), range(start, start + len(logits)))
    keys_EN = torch.cat([each.result() for each in running], dim=1)
    found, units = unpacked(keys_EN.topk(k, dim=1).values)
    assert (found[0].tolist(), units[0].tolist()) == by_hand(row, k)


@given(
    st.lists(
        st.tuples(st.floats(width=32, allow_nan=False), st.integers(0, 2**32 - 2)), min_size=1, max_size=20
    )
)
def test_keys_are_in_the_order_of_logits_and_then_of_units(pairs):
    logits, units = torch.tensor([logit for logit, _ in pairs]), torch.tensor([unit for _, unit in pairs])
    ordered = keys(logits, units).sort(descending=True).values
    expected = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    found, found_units = unpacked(ordered)
    assert found.tolist() == [logit for logit, _ in expected]
    assert found_units.tolist() == [-1 if logit == float("-inf") else unit for logit, unit in expected]


def test_what_is_no_number_is_never_lost(search):
    row = torch.arange(100.0)[None]
    row[0, 70] = -torch.tensor(torch.nan)
    found, units = by_tiles(search, row, 3, 10)
    assert units.tolist() == [[70, 99, 98]]
    assert found.isnan().tolist() == [[True, False, False]]
    assert [each.shape for each in by_tiles(search, torch.zeros(0, 50), 3, 20)] == [(0, 3)] * 2
