"""Examples do not depend on the batches in which Spark sends their rows."""

import random

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; `make test-spark` installs it")


def rows_of(num_rows, seed=0):
    draw = random.Random(seed)
    users = sorted(f"u{min(draw.randrange(40), draw.randrange(40))}" for _ in range(num_rows))
    return pa.RecordBatch.from_pydict(
        {
            "user": users,
            "feature": pa.array([draw.randrange(9) for _ in users], pa.int64()),
            "value": [float(draw.randrange(5)) for _ in users],
        }
    )


def cut(batch, lengths):
    starts = np.cumsum([0, *lengths])
    return [batch.slice(start, length) for start, length in zip(starts, lengths, strict=False)]


@pytest.mark.parametrize("rows_at_once", [1, 2, 50, 10_000])
@pytest.mark.parametrize("lengths", [[500], [1] * 500, [0, 7, 0, 493], [250, 250]])
def test_batches_change_nothing(rows_at_once, lengths):
    from widenet.spark.partition_contents import examples

    rows = rows_of(500)
    expected = {}
    for row in rows.to_pylist():
        own = expected.setdefault(row["user"], {})
        own[row["feature"]] = max(own.get(row["feature"], -1), row["value"])
    made = pa.Table.from_batches(examples(cut(rows, lengths), "items", "max", True, False, rows_at_once))
    assert made.column("id").to_pylist() == list(expected)
    for row in made.to_pylist():
        own = sorted(expected[row["id"]].items())
        assert list(zip(row["items"], row["items.value"], strict=True)) == own
