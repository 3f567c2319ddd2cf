"""What the tests of data share: real data if there is any, and small sources."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from tests.older import dataset_of_format_1
from widenet.data.lists import dataset_from_lists

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def real_data():
    folder = Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set WIDENET_DATA")
    return folder


@pytest.fixture
def source(tmp_path):
    """Writes a text file and gives its path."""

    def write(name, text):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def foreign(tmp_path):
    """A dataset directory as another program might write it: some columns and keys of the manifest differ,
    the checksums are right.
    """

    def write(columns=None, **keys):
        folder = tmp_path / "foreign"
        dataset_from_lists(
            folder,
            [[0, 2], [], [1]],
            values=[[1.0, 5.0], [], [2.0]],
            weights=[1, 1, 1],
            heldout=[[1], [], []],
            dense={"age": [[1], [2], [3]]},
        )
        path = folder / "examples-00000.arrow"
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        for name, values in (columns or {}).items():
            values = (
                values if isinstance(values, pa.Array) else pa.array(values, table.schema.field(name).type)
            )
            table = table.set_column(table.schema.names.index(name), name, values)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.slice(0, 1))
            writer.write_table(table.slice(1))
        return dataset_of_format_1(folder, **keys)

    return write
