"""Small data where benchmarks of Gowalla look for theirs."""

import pytest

from benchmarks import gowalla, latest
from tests.benchmarks.toys import HISTORIES


@pytest.fixture
def ordered(tmp_path, monkeypatch):
    """A published `train.txt` in order of time; its sorted copy and a test part are where benchmarks look."""
    folder = tmp_path / "data" / "gowalla"
    folder.mkdir(parents=True)
    for module in (gowalla, latest):
        monkeypatch.setattr(module, "DATA", tmp_path / "data")
    monkeypatch.setattr(latest, "_POPULAR", 9)
    for path, lists in {
        tmp_path / "ordered.txt": HISTORIES,
        folder / "train.txt": map(sorted, HISTORIES),
    }.items():
        path.write_text("".join(f"{user} {' '.join(map(str, row))}\n" for user, row in enumerate(lists)))
    (folder / "test.txt").write_text("0 38 39\n1 38 39\n")
    return tmp_path / "ordered.txt"
