"""What the tests of data share: real data if there is any, and small sources."""

import os
from pathlib import Path

import pytest

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
