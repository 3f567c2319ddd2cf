"""Sparse input: sums and row gradients against the reference and against dense float64 products."""

import pytest
import torch

from widenet.kernels import reference
from widenet.kernels.bags import Touched, gather_sum, gather_sums, split
from widenet.sparse import SparseBatch

ROWS = {
    "a few": [[3, 17, 5], [], [0], [30, 2, 2, 2, 9], [17]],
    "prime sizes": [[(7 * e + 11 * i) % 31 for i in range(e % 5)] for e in range(13)],
    "no examples": [],
    "only empty rows": [[], [], []],
    "first and last row empty": [[], [1, 30], []],
    "duplicates in and across rows": [[4, 4, 4], [4, 4], [30, 4, 30]],
    "all units on": [list(range(31)), list(range(31))],
    "one long row": [[(5 * i) % 31 for i in range(997)]],
}
WIDTH = 31


def batch_of(rows, with_values, dtype):
    generator = torch.Generator().manual_seed(1)
    batch = SparseBatch.from_lists(rows)
    values = torch.randn(batch.num_entries, generator=generator) if with_values else None
    return SparseBatch(batch.indptr, batch.indices.to(dtype), values)


def dense(rows, batch):
    """The batch as a float64 matrix, built entry by entry, and the same of the entries' magnitudes."""
    values = iter([1.0] * batch.num_entries if batch.values is None else batch.values.tolist())
    matrix, magnitudes = ([[0.0] * WIDTH for _ in rows] for _ in range(2))
    for example, row in enumerate(rows):
        for unit in row:
            value = next(values)
            matrix[example][unit] += value
            magnitudes[example][unit] += abs(value)
    return (torch.tensor(cells, dtype=torch.float64).view(-1, WIDTH) for cells in (matrix, magnitudes))


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def close(found, expected, magnitude, rows):
    """Within float32 rounding of as many additions as the longest row has, over terms of some magnitude."""
    error = 2.0**-24 * (1 + max(map(len, rows), default=0)) * magnitude
    return found.dtype == torch.float32 and bool(((found.double() - expected).abs() <= error).all())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("with_values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("columns", [1, 7, 64])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_sums_and_row_gradients_are_those_of_dense_products(rows, columns, with_values, dtype):
    batch, weight_FH = batch_of(rows, with_values, dtype), numbers(WIDTH, columns)
    matrix, magnitudes = dense(rows, batch)
    for implementation in (gather_sum, reference.gather_sum):
        found = implementation(batch, weight_FH)
        assert found.shape == (len(rows), columns)
        assert close(found, matrix @ weight_FH.double(), magnitudes @ weight_FH.double().abs(), rows)
    gradient_EH = numbers(len(rows), columns)
    touched = Touched.of(batch).by(gradient_EH)
    features_U = touched.features_U
    assert features_U.dtype == torch.int64
    assert features_U.tolist() == sorted({unit for row in rows for unit in row})
    expected, magnitude = matrix.T @ gradient_EH.double(), magnitudes.T @ gradient_EH.double().abs()
    assert close(touched.rows(), expected[features_U], magnitude[features_U], [*rows, rows])


@pytest.mark.parametrize("with_values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_gradients_of_some_rows_are_those_of_all_at_once(rows, with_values):
    touched = Touched.of(batch_of(rows, with_values, torch.int64)).by(numbers(len(rows), 16))
    for size in (1, 2, 5):
        pieces = [
            touched.rows(start, min(start + size, len(touched))) for start in range(0, len(touched), size)
        ]
        assert torch.equal(torch.cat([*pieces, touched.rows(0, 0)]), touched.rows())


@pytest.mark.parametrize("have_values", [(False, True), (True, False), (True, True)], ids=str)
def test_the_sum_of_two_gradients_has_the_rows_of_both(have_values):
    rows = ROWS["a few"], ROWS["duplicates in and across rows"]
    first, second = (
        Touched.of(batch_of(own, has_values, torch.int64)).by(numbers(len(own), 7) + len(own))
        for own, has_values in zip(rows, have_values, strict=True)
    )
    total = first.plus(second)
    assert total.features_U.tolist() == sorted({*first.features_U.tolist(), *second.features_U.tolist()})
    expected = torch.zeros(WIDTH, 7)
    for own in (first, second):
        expected[own.features_U] += own.rows()
    assert torch.allclose(total.rows(), expected[total.features_U], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_sums_of_shards_are_those_of_each(rows, dtype, num_threads):
    batch, weight_FH = batch_of(rows * 20, dtype is torch.int32, dtype), numbers(WIDTH, 5)
    shards = [weight_FH[shard::3].contiguous() for shard in range(3)]
    found = gather_sums(batch, [shards[0], None, shards[2]], 5, num_threads)
    parts = split(batch, 3)
    for shard in (0, 2):
        assert torch.equal(found[shard], gather_sum(parts[shard], shards[shard]))
