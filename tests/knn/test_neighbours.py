"""The nearest vectors: those of float64 numpy, where everything is compared and sorted, and those of
faiss's flat index.
"""

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mistakes import mistake
from widenet.errors import ArgumentError, DataError, FitError, OptionError
from widenet.knn import neighbours as module
from widenet.knn.neighbours import MEASURES, Neighbours

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.standard_normal((700, 12)).astype(np.float32)
QUERIES = RANDOM.standard_normal((21, 12)).astype(np.float32)


def scores_of(measure, queries, vectors):
    """Every score float64 [E, N], and what sorts the nearest first."""
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if measure == "l2":
        difference = queries[:, None] - vectors[None]
        distance = np.sqrt((difference**2).sum(axis=-1))
        return distance, distance
    product = (queries[:, None] * vectors[None]).sum(axis=-1)
    if measure == "cosine":
        length = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
        product = np.divide(product, length, out=np.zeros_like(product), where=length > 0)
    return product, -product


def best_of(measure, queries, vectors, k):
    """Scores and positions of the k nearest; of equal ones the lower position first."""
    scores, order = scores_of(measure, queries, vectors)
    positions = np.argsort(order, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, positions, axis=1), positions


def assert_best(measure, queries, vectors, k, **options):
    found = Neighbours.of(vectors, measure=measure, device="cpu", **options).search(queries, k)
    scores, positions = best_of(measure, queries, vectors, k)
    assert (found[0].dtype, found[1].dtype) == (np.float64, np.int64)
    np.testing.assert_array_equal(found[1], positions)
    np.testing.assert_allclose(found[0], scores, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("k", "shards"), [(1, 3), (10, 8), (699, 1), (700, 3), (5000, 3)])
def test_they_are_the_nearest_of_all(measure, k, shards):
    assert_best(measure, QUERIES, VECTORS, k, shards=shards)


@pytest.mark.parametrize("measure", ["dot", "l2"])
def test_they_are_those_of_faiss(measure):
    index = faiss.IndexFlatIP(12) if measure == "dot" else faiss.IndexFlatL2(12)
    index.add(VECTORS)
    np.testing.assert_array_equal(
        Neighbours.of(VECTORS, measure=measure).search(QUERIES, 20)[1], index.search(QUERIES, 20)[1]
    )


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("distance", [1e3, 1e5])
def test_vectors_that_float32_products_cannot_tell_apart_are_in_order(measure, distance):
    far = np.float32(distance) + VECTORS
    queries = np.float32(distance) + QUERIES
    direct = queries @ far.T - (0.5 * (far**2).sum(axis=1) if measure == "l2" else 0)
    assert (np.argsort(-direct, axis=1)[:, :50] != best_of(measure, queries, far, 50)[1]).any()
    assert_best(measure, queries, far, 50)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1e-20, 1e18, 3e37])
def test_products_beyond_float32_do_no_harm(measure, size):
    assert_best(measure, QUERIES * np.float32(size), VECTORS * np.float32(size), 30)


numbers = st.integers(-2, 2)


@settings(max_examples=60, deadline=None)
@given(
    vectors=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=60),
    queries=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4),
    k=st.integers(1, 70),
    measure=st.sampled_from(MEASURES),
    shards=st.integers(1, 5),
)
def test_of_equally_near_vectors_the_lower_position_comes_first(vectors, queries, k, measure, shards):
    vectors, queries = np.array(vectors, dtype=np.float32), np.array(queries, dtype=np.float32)
    found = Neighbours.of(vectors, measure=measure, shards=shards).search(queries, k)
    if (
        measure == "cosine"
    ):  # a third of a product is not the same number everywhere: directions are compared whole
        order = -np.round(scores_of(measure, queries, vectors)[0], 12)
        got = np.take_along_axis(order, found[1], axis=1)
        np.testing.assert_array_equal(got, np.sort(order, axis=1)[:, :k])
    else:
        np.testing.assert_array_equal(found[1], best_of(measure, queries, vectors, k)[1])


@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
@pytest.mark.parametrize("measure", MEASURES)
def test_vectors_of_two_bytes_are_compared_as_they_are_stored(measure, stored):
    rounded = torch.from_numpy(VECTORS).to(getattr(torch, stored)).float().numpy()
    found = Neighbours.of(VECTORS, measure=measure, stored=stored)
    np.testing.assert_array_equal(found.search(QUERIES, 20)[1], best_of(measure, QUERIES, rounded, 20)[1])
    np.testing.assert_array_equal(found.vectors([5, 0, 699]), rounded[[5, 0, 699]])


def hashed(shards=8, threads=1):
    """The bits of some answers, computed with so many threads by as many processes as there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIDENET_THREADS", str(threads))
        found = []
        for measure in MEASURES:
            scores, positions = Neighbours.of(
                np.float32(100) + VECTORS, measure=measure, shards=shards, device="cpu"
            ).search(QUERIES, 25)
            found.append((scores.tobytes(), positions.tobytes()))
        return found


@pytest.mark.parametrize("size", [2, 3])
def test_every_number_of_processes_threads_and_shards_gives_the_same_bits(size, groups):
    expected = hashed()
    assert groups(size)(hashed, 8, 1) == [expected] * size
    assert groups(size)(hashed, 4, 2) == [expected] * size


@pytest.mark.parametrize(
    ("number", "value"), [("LARGEST_BLOCK", 3), ("_CANDIDATES_A_BLOCK", 1), ("_SPARE", 0)]
)
def test_neither_blocks_nor_spare_candidates_change_the_bits(number, value, monkeypatch):
    expected = hashed()
    monkeypatch.setattr(module, number, value)
    monkeypatch.setattr(module, "_SPARE_SHARE", 100)
    assert hashed() == expected


def reads_badly(folder):
    """What one process says whose part of a file is bad, and another whose part is not."""
    with pytest.raises(DataError) as caught:
        Neighbours.of(folder / "bad.txt", device="cpu")
    return str(caught.value).partition(": ")[0]


def test_what_one_process_cannot_read_all_refuse(groups, tmp_path):
    lines = [f"k{row}\t1 2 3" for row in range(40)]
    lines[33] = "k33\t1 x 3"
    (tmp_path / "bad.txt").write_text("\n".join(lines))
    place = tmp_path / "bad.txt"
    assert groups(2)(reads_badly, tmp_path) == [f"{place}, line 34"] * 2


@pytest.mark.parametrize(
    ("error", "place", "option", "options"),
    [
        (ArgumentError, None, "measure", {"measure": "cosin"}),
        (ArgumentError, None, "stored", {"stored": "fp16"}),
        (OptionError, None, "keys", {"keys": ["a"]}),
        (DataError, "vectors: row 1", None, {"vectors": [[1], [np.inf]]}),
        (DataError, "vectors: row 0", None, {"vectors": [[1e5]], "stored": "float16"}),
        (DataError, "vectors: row 0", None, {"vectors": [[1e300]]}),
        (DataError, "vectors", None, {"vectors": [1, 2]}),
        (DataError, "vectors", None, {"vectors": [[1, 2], [3]]}),
        (DataError, "vectors", None, {"vectors": np.zeros((0, 3))}),
    ],
)
def test_what_cannot_be_a_collection_is_refused(error, place, option, options):
    with mistake(error, place=place, option=option):
        Neighbours.of(**{"vectors": [[1], [2], [3]], **options})


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (OptionError, ([[1, 2]], 0)),
        (FitError, ([[1, 2, 3]], 1)),
        (DataError, ([[1, 2], [1, np.nan]], 1)),
        (DataError, ([[1, 2], [3]], 1)),
    ],
)
def test_what_cannot_be_asked_is_refused(error, arguments):
    with mistake(error):
        Neighbours.of([[1, 2]]).search(*arguments)


def test_vectors_are_given_by_positions_that_exist():
    collection = Neighbours.of(VECTORS, device="cpu")
    np.testing.assert_array_equal(collection.vectors([699, 0]), VECTORS[[699, 0]])
    for positions in ([700], [0, -1]):
        with mistake(OptionError, option="positions"):
            collection.vectors(positions)
