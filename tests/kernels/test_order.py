"""Sorting by digits gives what torch's stable sort gives, and keys are grouped as torch groups them."""

from itertools import pairwise

import pytest
import torch

from widenet.kernels import bags


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("most", [1, 4096, 4097, 2**24 + 1, 2**31 - 1, 2**62])
@pytest.mark.parametrize("number", [0, 1, 5000])
def test_equal_keys_stay_in_their_order(number, most, dtype, is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(bags, "library_runs", lambda _: False)
    if most > torch.iinfo(dtype).max:
        pytest.skip("the type has no such numbers")
    keys_Z = torch.randint(most, (number,), generator=torch.Generator().manual_seed(number), dtype=dtype)
    before_Z = keys_Z.clone()
    sorted_Z, order_Z = bags.stable_sort(keys_Z)
    expected_Z, expected_order_Z = torch.sort(keys_Z, stable=True)
    assert torch.equal(sorted_Z, expected_Z.long())
    assert torch.equal(order_Z, expected_order_Z)
    assert torch.equal(keys_Z, before_Z)
    assert [tensor.untyped_storage().nbytes() for tensor in (sorted_Z, order_Z)] == [8 * number] * 2


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize(("number", "most"), [(0, 1), (1, 9), (5000, 1), (5000, 700), (5000, 2**31 - 1)])
def test_each_key_is_named_once_with_where_its_entries_stood(number, most, is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(bags, "library_runs", lambda _: False)
    keys_Z = torch.randint(most, (number,), generator=torch.Generator().manual_seed(number))
    keys_U, indptr, order_Z = bags.grouped(keys_Z)
    assert keys_U.tolist() == sorted(set(keys_Z.tolist()))
    assert [indptr[0], indptr[-1]] == [0, number]
    found = [order_Z[start:stop].tolist() for start, stop in pairwise(indptr)]
    assert found == [torch.nonzero(keys_Z == key)[:, 0].tolist() for key in keys_U]
