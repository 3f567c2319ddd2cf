"""Approximate indexes of a collection for faiss, each measured against the exact answer."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from widenet.durable import appearing_together
from widenet.errors import DataError, OptionError
from widenet.knn.neighbours import Neighbours, checked
from widenet.metrics import checked_k
from widenet.optional import optional
from widenet.parallel.group import num_processes

Kind: TypeAlias = Literal["hnsw", "ivf"]

NUM_QUERIES = 1000
"""Vectors of the collection that are asked for, at most, to measure an index."""

_LINKS, _LOOKED_AT_IN_BUILDING, _LOOKED_AT = 32, 200, 64
"""Of "hnsw": neighbours that each vector knows, and candidates that are kept while the graph is built, and
while it is searched.
"""

_VECTORS_A_CENTRE, _VISITED_SHARE = 39, 16
"""Of "ivf": the fewest vectors of a centre, as faiss asks for; a search visits one of so many centres."""

_VECTORS_AT_ONCE = 8192


@dataclass(frozen=True)
class Exported:
    """An index that was written.

    recall: the share of the exact k nearest that it finds, of each query without itself. settings: in words.
    """

    k: int
    recall: float
    num_queries: int
    num_bytes: int
    settings: str


def export_index(collection: Neighbours, out: Path, kind: Kind = "hnsw", k: int = 10) -> Exported:
    """Write an index that faiss reads, and `out`.keys with the keys by position, one a line, neither of which
    may exist yet; measure it.

    Both files appear, or neither.

    For "cosine" the index holds directions, and takes queries of length 1; positions and order of scores are
    those of `search`. It is built in one thread, so that the same vectors give the same index. Raises
    DataError, OptionError.
    """
    checked("index", kind, get_args(Kind))
    k = checked_k(k)
    if num_processes() > 1:
        raise OptionError(
            "an index is built by one process; start the command without --processes or torchrun."
        )
    if out.is_dir():
        raise OptionError(f"{out}: must be a file to write; it is a directory. Choose another --out.")
    if taken := next((path for path in (out, _keys_path(out)) if path.exists()), None):
        raise OptionError(f"{taken} exists already. Choose another --out, or remove it first.")
    names = collection.keys.to_pylist()
    if any("\n" in name for name in names):
        raise DataError("keys must not hold a line break, for they are written one a line. Give other keys.")
    with optional("faiss", "knn"):
        import faiss
    positions = np.arange(len(collection))
    vectors = _prepared(collection)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index, settings = _built(faiss, collection, vectors, kind)
        asked = positions[:: math.ceil(len(collection) / NUM_QUERIES)]
        recall = _recall(collection, index, asked, vectors[asked], k)
        _write(faiss, index, out, names)
    finally:
        faiss.omp_set_num_threads(threads)
    return Exported(k, recall, len(asked), out.stat().st_size, settings)


def _prepared(collection: Neighbours) -> NDArray[np.float32]:
    """All vectors as the index takes them, some at a time: every shard gives as many rows as are asked
    for.
    """
    found = np.empty((len(collection), collection.columns), dtype=np.float32)
    for start in range(0, len(found), _VECTORS_AT_ONCE):
        block = found[start : start + _VECTORS_AT_ONCE]
        block[:] = collection.vectors(np.arange(start, start + len(block)))
        if collection.measure == "cosine":
            length = np.linalg.norm(block.astype(np.float64), axis=1, keepdims=True)
            block[:] = np.divide(block, length, out=np.zeros(block.shape), where=length > 0)
    return found


def _built(faiss: Any, collection: Neighbours, vectors: NDArray[np.float32], kind: str) -> tuple[Any, str]:
    """An index of vectors, and its settings in words."""
    metric = faiss.METRIC_L2 if collection.measure == "l2" else faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(collection.columns, _LINKS, metric)
        index.hnsw.efConstruction, index.hnsw.efSearch = _LOOKED_AT_IN_BUILDING, _LOOKED_AT
        settings = (
            f"{_LINKS} links, {_LOOKED_AT_IN_BUILDING} looked at in building, {_LOOKED_AT} in searching"
        )
    else:
        centres = max(1, min(round(4 * math.sqrt(len(vectors))), len(vectors) // _VECTORS_A_CENTRE))
        centre_index = faiss.IndexFlat(collection.columns, metric)
        index = faiss.IndexIVFFlat(centre_index, collection.columns, centres, metric)
        index.nprobe = math.ceil(centres / _VISITED_SHARE)
        index.cp.min_points_per_centroid = 1  # without this faiss warns of few vectors on standard error
        index.train(vectors)
        settings = f"{centres:,} centres, {index.nprobe:,} visited in searching"
    index.add(vectors)
    return index, settings


def _recall(
    collection: Neighbours, index: Any, asked: NDArray[np.int64], queries: NDArray[np.float32], k: int
) -> float:
    """The share of the exact k nearest that an index finds, of each vector without itself."""
    exact = _without_itself(collection.search(collection.vectors(asked), k + 1)[1], asked, k)
    found = _without_itself(index.search(queries, k + 1)[1], asked, k)
    return (
        float((exact[:, :, None] == found[:, None, :]).any(axis=2)[exact >= 0].mean())
        if (exact >= 0).any()
        else 1.0
    )


def _without_itself(positions: NDArray[np.int64], asked: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The first k positions of each row that are not the row's own; -1 where there are fewer."""
    other = positions != asked[:, None]
    order = np.argsort(~other, axis=1, kind="stable")
    return np.take_along_axis(np.where(other, positions, -1), order, axis=1)[:, :k]


def _keys_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.keys")


def _write(faiss: Any, index: Any, out: Path, names: list[str]) -> None:
    """Both files, or none. Raises OSError that names one of them."""
    files = {
        _keys_path(out): "".join(f"{name}\n" for name in names).encode(),
        out: faiss.serialize_index(index).tobytes(),
    }
    with appearing_together(list(files)) as places:
        for place, data in zip(places, files.values(), strict=True):
            try:
                place.write_bytes(data)
            except OSError as error:
                error.filename = str(place)  # a write that fails names no file
                raise
