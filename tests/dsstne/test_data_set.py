"""Data sets that DSSTNE's own reader has read, and says what it found: read alike."""

import numpy as np
import pytest

from widenet.data.dataset import Dataset
from widenet.dsstne.data import import_data

SPARSE, BOOLEAN, WEIGHTED, UNSIGNED = 1, 2, 128, 6
LISTS = {
    "start": int,
    "end": int,
    "idx": int,
    "sdata": np.float32,
    "data": np.float32,
    "weight": np.float32,
    "index": int,
}


def printed(path):
    """What DSSTNE's reader printed of every data set: its facts and lists, by its name."""
    found, name = {}, ""
    for line in path.read_text().splitlines():
        first, _, rest = line.partition(" ")
        if first.endswith(":"):
            found[name][first[:-1]] = [LISTS[first[:-1]](value) for value in rest.split()]
        else:
            name, facts = first, dict(fact.partition("=")[::2] for fact in rest.split())
            found[name] = {
                "type": int(facts["type"]),
                "attributes": int(facts["attr"]),
                "examples": int(facts["ex"]),
            }
            found[name]["sides"] = [int(side) for side in rest.split()[-1].split("x")][: int(facts["dim"])]
    return found


def rows_of(said):
    """The examples that it has, dense float64 [E, width]; numbers of an index that an example repeats are
    added up.
    """
    width, places = int(np.prod(said["sides"])), said["index"] or range(said["examples"])
    if not said["attributes"] & SPARSE:
        data = np.reshape(said["data"], (-1, width)).astype(np.float64)
        return (data / 256 - 0.5 if said["type"] == UNSIGNED and not said["attributes"] & BOOLEAN else data)[
            list(places)
        ]
    rows = np.zeros((said["examples"], width))
    for row, place in zip(rows, places, strict=True):
        for entry in range(said["start"][place], said["end"][place]):
            index = said["idx"][entry]
            row[index] = 1 if said["attributes"] & BOOLEAN else row[index] + said["sdata"][entry]
    return rows


def dense(dataset, name):
    """The examples of a field, dense."""
    field, positions = dataset.fields[name], np.arange(dataset.num_examples)
    rows = dataset.rows(name, positions)
    if field.kind == "dense":
        return rows.numpy()
    found = np.zeros((dataset.num_examples, field.width))
    values = np.ones(len(rows.indices)) if rows.values is None else rows.values.numpy()
    found[np.repeat(positions, np.diff(rows.indptr.numpy())), rows.indices.numpy()] = values
    return found


@pytest.fixture(scope="module", params=["bool", "t0", "t4", "t6"])
def read(request, written, tmp_path_factory):
    """A file, what DSSTNE says of it, and the dataset that it became."""
    path, out = written / "datasets" / f"{request.param}.nc", tmp_path_factory.mktemp(request.param) / "data"
    import_data([path], out)
    return path, printed(path.with_suffix(".txt")), Dataset.open(out)


def test_examples_are_those_that_dsstne_reads(read):
    _, said, dataset = read
    assert list(dataset.fields) == list(said)
    for name, facts in said.items():
        np.testing.assert_array_equal(dense(dataset, name), rows_of(facts).astype("f4"))
        known = dataset.manifest.source["dsstne"][name]
        assert (known["dimensions"], dataset.num_examples) == (facts["sides"], facts["examples"])
    weights = next((facts["weight"] for facts in said.values() if facts["attributes"] & WEIGHTED), None)
    if weights:
        np.testing.assert_array_equal(
            dataset.weights(np.arange(dataset.num_examples)).numpy(), np.array(weights, "f4")
        )
