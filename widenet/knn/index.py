"""Exports an approximate faiss index of a collection, and measures its recall against the exact answer."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widenet.errors import DataError, OptionError
from widenet.knn.neighbours import Neighbours, approach, others_of
from widenet.late_imports import optional
from widenet.metrics.ranking import checked_k
from widenet.parallel.group import num_processes
from widenet.regular_files import check_new
from widenet.stores.durable import appearing_together

NUM_QUERIES = 1000
"""Largest number of the collection's vectors that are used as queries to measure an index."""

_LINKS = 32
"""Links of each vector in the graph."""
_BUILD_CANDIDATES, _SEARCH_CANDIDATES = 200, 64
"""Candidates kept while the graph is built, and while it is searched."""

_VECTORS_AT_ONCE = 8192

_BEGINNING, _COUNT = b"IHNf", slice(8, 16)
"""First bytes of faiss files of this kind, and where they have the number of vectors."""


@dataclass(frozen=True)
class Exported:
    """Facts about an index that was written.

    Attributes:
        k: Number of neighbours for which the recall was measured.
        recall: Share of the k exact nearest neighbours that the index finds; a query itself does not count.
        num_queries: Number of queries of the measurement.
        num_bytes: Size of the file.
    """

    k: int
    recall: float
    num_queries: int
    num_bytes: int


def export_index(collection: Neighbours, out: Path, k: int = 10, overwrite: bool = False) -> Exported:
    """Write a faiss index of a collection, a graph of near neighbours (HNSW), and measure it.

    Also writes the keys to `out` with ".keys" appended, one a line, in order of positions. Either both files
    appear or neither. For "cosine" the index holds vectors of length 1, and its queries must have length 1
    too. The index is built in one thread, so the same vectors give the same index.

    Args:
        collection: The vectors.
        out: The index file.
        k: Number of neighbours for which to measure the recall, at most all others.
        overwrite: Whether to replace an earlier index and its keys.

    Raises:
        DataError: A key contains a line break.
        OptionError: An argument is wrong, a file exists, faiss is missing, or there are several processes.
    """
    if num_processes() > 1:
        raise OptionError("an index is built by one process")
    k = min(checked_k(k), max(len(collection) - 1, 1))
    if out.is_dir():
        raise OptionError("must be a file to write; it is a directory", place=out)
    for path in (out, _keys_path(out)):
        check_new(path, overwrite, "an index with its keys", lambda _: _is_index(out))
    names = collection.keys.to_pylist()
    if any("\n" in name for name in names):
        raise DataError("must not hold a line break, since they are written one a line", option="keys")
    with optional("faiss", "knn"):
        import faiss
    positions = np.arange(len(collection))
    vectors = _prepared(collection)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        metric = faiss.METRIC_L2 if collection.measure == "l2" else faiss.METRIC_INNER_PRODUCT
        index = faiss.IndexHNSWFlat(collection.columns, _LINKS, metric)
        index.hnsw.efConstruction, index.hnsw.efSearch = _BUILD_CANDIDATES, _SEARCH_CANDIDATES
        index.add(vectors)
        queries = positions[:: math.ceil(len(collection) / NUM_QUERIES)]
        recall = _recall(collection, index, queries, vectors[queries], k)
        out.parent.mkdir(parents=True, exist_ok=True)
        with appearing_together([out, _keys_path(out)]) as (index_file, keys_file):
            index_file.write_bytes(faiss.serialize_index(index).tobytes())
            keys_file.write_bytes("".join(f"{name}\n" for name in names).encode())
    finally:
        faiss.omp_set_num_threads(threads)
    return Exported(k, recall, len(queries), out.stat().st_size)


def _prepared(collection: Neighbours) -> NDArray[np.float32]:
    """All vectors as the index needs them: of length 1 for "cosine".

    They are read in blocks, since each shard returns a block of as many rows as are read.
    """
    vectors = np.empty((len(collection), collection.columns), dtype=np.float32)
    for start in range(0, len(vectors), _VECTORS_AT_ONCE):
        own = np.arange(start, min(start + _VECTORS_AT_ONCE, len(vectors)))
        vectors[own] = approach(collection.measure, torch.from_numpy(collection.vectors(own))).numpy()
    return vectors


def _recall(
    collection: Neighbours, index: Any, positions: NDArray[np.int64], queries: NDArray[np.float32], k: int
) -> float:
    """Share of the k exact nearest neighbours of some vectors that an index finds; see `Exported`."""
    _, exact, is_exact = collection.others(positions, k)
    _, approximate = index.search(queries, k + 1)
    is_found = (exact[:, :, None] == approximate[:, None, :]) & others_of(approximate, positions, k)[:, None]
    return float(is_found.any(axis=2)[is_exact].mean()) if is_exact.any() else 1.0


def _keys_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.keys")


def _is_index(out: Path) -> bool:
    """Whether a file begins as an index of `export_index`, with as many vectors as there are keys."""
    if not out.is_file() or not _keys_path(out).is_file():
        return False
    with out.open("rb") as file, _keys_path(out).open("rb") as keys:
        head = file.read(_COUNT.stop)
        return head.startswith(_BEGINNING) and sum(1 for _ in keys) == int.from_bytes(head[_COUNT], "little")
