"""Blocks of narrow products: how many, where they lie, and who computes them."""

from itertools import pairwise

import pytest

from widenet.plan.narrow import BALANCES, dividing_pays, edges, num_blocks


@pytest.mark.parametrize(
    ("shape", "most", "expected"),
    [
        ((256, 1024, 1024), 8, 4),
        ((1024, 256, 1024), 8, 8),
        ((1024, 256, 1024), 3, 3),
        ((256, 256, 256), 8, 2),
        ((127, 4096, 4096), 8, 1),
        ((6, 5, 4), 8, 1),
        ((0, 512, 512), 8, 1),
        ((4096, 1, 1), 8, 1),
    ],
    ids=str,
)
def test_blocks_have_enough_rows_and_enough_to_do(shape, most, expected):
    assert num_blocks(*shape, most, "cpu") == expected


def test_a_gpu_takes_larger_blocks():
    assert num_blocks(4096, 4096, 4096, 8, "cpu") == 8
    assert num_blocks(4096, 4096, 4096, 8, "cuda") == 4
    assert num_blocks(256, 1024, 1024, 8, "cuda") == 1


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (7, 1), (260, 4), (500, 7), (9, 8)])
def test_blocks_follow_each_other_and_differ_by_one_row_at_most(rows, count):
    found = edges(rows, count)
    sizes = [stop - start for start, stop in pairwise(found)]
    assert (found[0], found[-1], len(sizes)) == (0, rows, count)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("device", BALANCES)
def test_dividing_pays_where_a_number_takes_many_operations(device):
    balance = BALANCES[device].flops_per_byte
    assert not dividing_pays(10**9, 1, device)
    for processes in (2, 8):
        least = round(2 * balance * processes / (processes - 1))
        assert dividing_pays(least + 1, processes, device)
        assert not dividing_pays(least - 1, processes, device)
