"""Reading a dataset: any rows of any division equal the lists they came from."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.mistakes import mistake
from tests.older import dataset_of_format_1
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.rules import FieldLayout
from widenet.data.writer import write_contents
from widenet.errors import DataError, FitError, OptionError

WIDTH = 50


@pytest.fixture(scope="module")
def lists():
    random = np.random.default_rng(1)
    return [
        sorted(random.choice(WIDTH, size=size, replace=False).tolist())
        for size in random.integers(0, 9, size=40)
    ]


def divided(folder, lists, rows_per_batch, bytes_per_file, vocabularies=None):
    """A dataset of many small record batches and files, with every kind of column."""
    folder.mkdir()
    columns = {
        "id": pa.array([f"üser {row}" for row in range(len(lists))]),
        "weight": pa.array(np.arange(len(lists), dtype=np.float32)),
        "items": pa.array(lists, pa.list_(pa.uint32())),
        "items.value": pa.array([[index / 2 for index in row] for row in lists], pa.list_(pa.float32())),
        "age": pa.array([[row, -row, 0.5] for row in range(len(lists))], pa.list_(pa.float32(), 3)),
    }
    write_contents(
        folder,
        name="divided",
        layouts=[FieldLayout("items", WIDTH, has_values=True), FieldLayout("age", 3, kind="dense")],
        batches=[pa.RecordBatch.from_arrays(list(columns.values()), list(columns))],
        vocabularies=vocabularies or {},
        has_weights=True,
        source={},
        rows_per_batch=rows_per_batch,
        bytes_per_file=bytes_per_file,
    )
    return Dataset.open(folder)


@pytest.mark.parametrize(
    ("rows_per_batch", "bytes_per_file", "num_files"),
    [(100, 2**30, 1), (7, 2**30, 1), (7, 1, 6), (3, 4000, None)],
)
def test_any_rows_in_any_order_equal_the_lists_however_the_files_are_divided(
    tmp_path, lists, rows_per_batch, bytes_per_file, num_files
):
    dataset = divided(tmp_path / "ds", lists, rows_per_batch, bytes_per_file)
    assert num_files in (None, len(dataset.manifest.example_files))
    rows = np.random.default_rng(2).integers(0, len(lists), size=60)
    batch = dataset.sparse("items", rows).checked(WIDTH)
    assert batch.indices.dtype == torch.int32
    assert batch.indptr.tolist() == np.cumsum([0, *(len(lists[row]) for row in rows)]).tolist()
    assert batch.indices.tolist() == [index for row in rows for index in lists[row]]
    assert batch.values.tolist() == [index / 2 for row in rows for index in lists[row]]
    assert dataset.dense("age", rows).tolist() == [[row, -row, 0.5] for row in rows]
    assert dataset.weights(rows).tolist() == rows.tolist()
    assert dataset.ids(rows) == [f"üser {row}" for row in rows]
    assert dataset.entry_counts("items", rows).tolist() == [len(lists[row]) for row in rows]


def test_no_rows_and_slices_are_rows_too(tmp_path):
    dataset = dataset_from_lists(tmp_path / "ds", [[0, 2], [], [1]])
    assert dataset.rows("items", np.zeros(0, dtype=np.int64)).num_examples == 0
    assert dataset.rows("items", slice(1, None)).indptr.tolist() == [0, 0, 1]
    assert dataset.weights(slice(None)) is None
    assert repr(dataset).endswith("3 examples, items 3)")


def test_an_unknown_field_and_a_missing_part_are_named_with_the_remedy(tmp_path):
    dataset = dataset_from_lists(tmp_path / "ds", [[0], [1]], dense={"age": [[1], [2]]})
    with mistake(DataError, place="itens"):
        dataset.rows("itens", slice(None))
    with mistake(FitError):
        dataset.rows("items", slice(None), "heldout")
    named = dataset_from_lists(tmp_path / "named", [[0], [1]], field="labels")
    with mistake(FitError):
        named.rows("labels", slice(None), "validation")
    with mistake(FitError):
        dataset.counts("age")
    with mistake(FitError):
        dataset.dense("items", slice(None))


def test_a_compressed_file_is_refused(tmp_path):
    dataset_from_lists(tmp_path / "ds", [list(range(1000))] * 20)
    path = tmp_path / "ds" / "examples-00000.arrow"
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        writer.write_table(table)
    dataset_of_format_1(tmp_path / "ds")
    with mistake(DataError):
        Dataset.open(tmp_path / "ds")


@pytest.mark.parametrize("rows", [[0, 7], np.array([-1]), [0.5], [True, False], 1, [[0], [1, 2]]], ids=str)
def test_a_row_that_does_not_exist_is_refused(tmp_path, rows):
    dataset = dataset_from_lists(tmp_path / "data", [[0], [1], [0, 1]], dense={"age": [[1], [2], [3]]})
    for read in (
        lambda: dataset.sparse("items", rows),
        lambda: dataset.dense("age", rows),
        lambda: dataset.ids(rows),
    ):
        with mistake(OptionError, option="rows"):
            read()
