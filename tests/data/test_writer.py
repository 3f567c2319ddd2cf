"""Writing: rules checked, published whole or not at all."""

import pyarrow as pa
import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.data.rules import FieldLayout
from widenet.data.writer import rebatched, write_dataset
from widenet.errors import DataError


def batch(rows, values=None):
    columns = {
        "id": pa.array([str(row) for row in range(len(rows))]),
        "items": pa.array(rows, pa.list_(pa.uint32())),
    }
    if values is not None:
        columns["items.value"] = pa.array(values, pa.list_(pa.float32()))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def write(out, batches, **layout):
    return write_dataset(out, layouts=[FieldLayout("items", 5, **layout)], batches=batches, vocabularies={})


def test_a_crash_in_the_middle_leaves_nothing(tmp_path):
    def crashing():
        yield batch([[0], [1]] * 20_000)
        raise RuntimeError("the power went out")

    with pytest.raises(RuntimeError, match="the power went out"):
        write(tmp_path / "ds", crashing())
    assert list(tmp_path.iterdir()) == []


def test_the_files_do_not_depend_on_how_the_source_was_divided(tmp_path):
    rows = [[row % 5] for row in range(20_000)]
    columns = batch(rows)
    write(tmp_path / "whole", [columns])
    write(tmp_path / "pieces", [columns.slice(start, 777) for start in range(0, len(rows), 777)])
    content = [(tmp_path / name / "examples-00000.arrow").read_bytes() for name in ("whole", "pieces")]
    assert content[0] == content[1]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_batch_has_lists_of_so_many_entries_unless_it_is_one_row(size):
    rows = batch([[0], [0, 1], [0], [0, 1, 2, 3], [], [1]])
    pieces = pa.Table.from_batches([rows]).to_batches(max_chunksize=size)
    again = list(rebatched(pieces, rows.schema, 4, 3))
    assert [each.column("items").to_pylist() for each in again] == [
        [[0], [0, 1]],
        [[0]],
        [[0, 1, 2, 3]],
        [[], [1]],
    ]


def test_a_dataset_below_a_file_is_refused_and_the_file_stays(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file" / "x", tmp_path / "file" / "x" / "y"):
        with mistake(DataError):
            dataset_from_lists(out, [[0]])
    assert (tmp_path / "file").read_text() == "mine"
