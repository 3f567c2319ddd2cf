"""The one form of sparse rows in memory: what it holds, gives and refuses."""

import pytest
import torch

from tests.mistakes import mistake
from widenet.errors import DataError
from widenet.sparse import SparseBatch

ROWS = [[3, 1], [], [0], [4, 4, 2]]
VALUES = [[0.5, 2.0], [], [-1.0], [1.0, 2.0, 3.0]]


def test_a_batch_of_lists_counts_and_names_the_owner_of_every_entry():
    batch = SparseBatch.from_lists(ROWS, VALUES)
    assert batch.indptr.tolist() == [0, 2, 2, 3, 6]
    assert batch.indices.tolist() == [3, 1, 0, 4, 4, 2]
    assert batch.values.tolist() == [0.5, 2.0, -1.0, 1.0, 2.0, 3.0]
    assert (batch.num_examples, batch.num_entries) == (4, 6)
    assert batch.counts().tolist() == [2, 0, 1, 3]
    assert batch.example_of_entry().tolist() == [0, 0, 2, 3, 3, 3]


def test_each_index_counts_once_ascending_or_where_it_occurs_last():
    batch = SparseBatch.from_lists([[3, 1, 3], [], [2, 0, 2, 2, 1]], [[1, 2, 3], [], [1, 2, 3, 4, 5]])
    ascending, in_order = batch.distinct(), batch.distinct_in_order()
    for once, indices in [(ascending, [1, 3, 0, 1, 2]), (in_order, [1, 3, 0, 2, 1])]:
        assert (once.counts().tolist(), once.indices.tolist()) == ([2, 0, 3], indices)
    assert ascending.values is None
    assert in_order.values.tolist() == [2, 3, 2, 4, 5]


def test_keeping_some_entries_keeps_them_in_their_examples_and_order():
    found = SparseBatch.from_lists(ROWS, VALUES).keep(torch.tensor([0, 1, 1, 1, 0, 1]).bool())
    assert (found.indptr.tolist(), found.indices.tolist()) == ([0, 1, 1, 2, 4], [1, 0, 4, 2])
    assert found.values.tolist() == [2.0, -1.0, 1.0, 3.0]
    assert SparseBatch.from_lists(ROWS).values_or_ones().tolist() == [1.0] * 6


def parts(indptr=(0, 2, 3), indices=(0, 4, 1), values=None, index_type=torch.int64, pointer_type=torch.int64):
    values = None if values is None else torch.tensor(values)
    return SparseBatch(
        torch.tensor(indptr, dtype=pointer_type), torch.tensor(indices, dtype=index_type), values
    )


NONE = torch.zeros(0, dtype=torch.int64)


@pytest.mark.parametrize(
    "batch",
    [
        parts(pointer_type=torch.int32),
        SparseBatch(NONE, NONE),
        parts(index_type=torch.float32),
        parts(indptr=(1, 2, 3)),
        parts(indptr=(0, 2, 4)),
        parts(indptr=(0, 4, 3)),
        parts(indices=(0, 5, 1)),
        parts(indices=(0, -1, 1)),
        parts(values=[1.0, 2.0]),
        parts(values=[1, 2, 3]),
        parts(values=[1.0, float("nan"), 2.0]),
        parts(values=[1.0, float("inf"), 2.0]),
    ],
)
def test_a_broken_rule_is_refused(batch):
    with mistake(DataError, place="items"):
        batch.checked(5, "items")
