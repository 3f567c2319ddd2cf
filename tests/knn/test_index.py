"""Approximate indexes: faiss reads them, their recall is what faiss finds, and one collection gives one
index.
"""

import resource

import faiss
import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.errors import DataError, OptionError
from widenet.knn import index as module
from widenet.knn.index import export_index
from widenet.knn.neighbours import MEASURES, Neighbours

VECTORS = np.random.default_rng(3).standard_normal((900, 8)).astype(np.float32)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_recall_is_that_of_the_index_that_was_written(measure, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NUM_QUERIES", 100)
    collection = Neighbours.of(VECTORS, measure=measure)
    found = export_index(collection, tmp_path / "index", 5)
    index = faiss.read_index(str(tmp_path / "index"))
    queries = VECTORS[::9] / (
        np.linalg.norm(VECTORS[::9], axis=1, keepdims=True) if measure == "cosine" else 1
    )
    hits = 0
    for row, near, exact in zip(
        range(0, 900, 9), index.search(queries, 6)[1], collection.search(VECTORS[::9], 6)[1], strict=True
    ):
        own = [position for position in near.tolist() if position != row][:5]
        hits += len(set(own) & set([position for position in exact.tolist() if position != row][:5]))
    assert (found.k, found.num_queries, found.num_bytes) == (5, 100, (tmp_path / "index").stat().st_size)
    assert found.recall == pytest.approx(hits / 500)
    assert found.recall > 0.3
    assert (tmp_path / "index.keys").read_text() == "".join(f"{position}\n" for position in range(900))
    first = (tmp_path / "index").read_bytes()
    export_index(collection, tmp_path / "new" / "again", 5)
    assert (tmp_path / "new" / "again").read_bytes() == first


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    with mistake(DataError, option="keys"):
        export_index(Neighbours.of(VECTORS[:2], ["a", "b\nc"]), tmp_path / "index")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with mistake(OptionError):
        export_index(Neighbours.of_model, tmp_path / "index")


def test_the_recall_is_measured_among_at_most_all_others(tmp_path):
    assert export_index(Neighbours.of(VECTORS[:20]), tmp_path / "index", 1000).k == 19


def test_both_files_appear_or_neither(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # room for the keys, and not for the index
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            export_index(Neighbours.of(VECTORS), tmp_path / "index", 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(tmp_path / "index")
    assert not list(tmp_path.iterdir())
