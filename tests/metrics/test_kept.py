"""Evaluations that a run directory keeps: read back as they were, and refused when damaged."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.mistakes import mistake
from widenet.data.manifest import sha256_of
from widenet.errors import DataError
from widenet.metrics.kept import Evaluated, keep, kept_evaluations
from widenet.metrics.ranking import RankingMetrics

OF = Evaluated("heldout", "0123456789abcdef", "items", True)


def metrics():
    found = RankingMetrics([1, 3], np.ones(9, dtype=np.int64))
    top = np.stack([np.random.default_rng(user).permutation(9)[:3] for user in range(20)])
    found.add(top, np.arange(21), np.arange(20) % 9, np.arange(20) * 2)
    return found.result()


def test_what_was_kept_is_read_back(tmp_path):
    written = metrics()
    keep(tmp_path, OF, "f00d", written)
    (found,) = kept_evaluations(tmp_path)
    assert (found.evaluated, found.fingerprint) == (OF, "f00d")
    read = found.read()
    assert read == written
    assert read.users.names == written.users.names
    np.testing.assert_array_equal(read.users.rows, written.users.rows)
    np.testing.assert_array_equal(read.users.values, written.users.values)


def test_a_later_evaluation_replaces_the_one_of_its_part(tmp_path):
    for fingerprint, part in (("a", "heldout"), ("b", "validation"), ("c", "heldout")):
        keep(tmp_path, Evaluated(part, OF.dataset, "items", True), fingerprint, metrics())
    found = {each.evaluated.part: each.fingerprint for each in kept_evaluations(tmp_path)}
    assert found == {"heldout": "c", "validation": "b"}
    assert len(list((tmp_path / "evaluations").iterdir())) == 4


NUMBERS = [float("nan"), float("inf"), 1.5, 0, -20, "20", 10**400, None]
NO_MEANS = [*({"num_examples": number} for number in NUMBERS), {"ndcg@3": float("nan")}, {"ndcg@3": True}]
NO_FACTS = ["", "[]", "{}", "[" * 100_000, '{"metrics": 3}', "\\xff", '{"part": "heldout", "dataset": 5}']


@pytest.mark.parametrize("change", [*NO_FACTS, *NO_MEANS])
def test_a_damaged_description_is_named(change, tmp_path):
    assert kept_evaluations(tmp_path) == []
    keep(tmp_path, OF, "f00d", metrics())
    (path,) = (tmp_path / "evaluations").glob("*.json")
    means = {"metrics": metrics() | change} if isinstance(change, dict) else {}
    path.write_text(json.dumps(json.loads(path.read_text()) | means) if means else change)
    with mistake(DataError):
        kept_evaluations(tmp_path)


@pytest.mark.parametrize(
    "columns",
    [
        None,
        {"row": [0]},
        {"row": [0.5], "ndcg@3": pa.array([1.0], pa.float32())},
        {"row": [0], "ndcg@3": pa.array([None], pa.float32())},
    ],
)
def test_a_changed_table_and_one_of_something_else_are_refused(columns, tmp_path):
    keep(tmp_path, OF, "f00d", metrics())
    (path,) = (tmp_path / "evaluations").glob("*.arrow")
    if columns is None:
        data = bytearray(path.read_bytes())
        data[300] ^= 1
        path.write_bytes(data)
    else:
        table = pa.table(columns)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
        facts = json.loads(path.with_suffix(".json").read_text()) | {"sha256": sha256_of(path)}
        path.with_suffix(".json").write_text(json.dumps(facts))
    (found,) = kept_evaluations(tmp_path)
    with mistake(DataError):
        found.read()


def test_baselines_that_were_measured_with_it_are_kept_too(tmp_path):
    written = metrics()
    written.baselines = {"popularity": metrics()}
    keep(tmp_path, OF, "f00d", written)
    (found,) = kept_evaluations(tmp_path)
    assert found.baselines == {"popularity": dict(metrics())}
    assert found.title("points") == "heldout, 20 points"
