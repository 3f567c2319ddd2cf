"""Vectors from files: rows whose ids the file has begin with them, others as initialized."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.mistakes import mistake
from tests.starts import rows
from tests.trainings import UNTIED, WIDTH, Heard, books, document
from widenet.errors import DataError, FitError
from widenet.plan.binding import bind
from widenet.runs import Model, train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.begin import check_vectors
from widenet.training.run_directory import RunDirectory

UNITS = 6
IDS = [f"book {number}" for number in range(WIDTH)]
KNOWN = [3, 30, 0, 17]
NUMBERS = np.random.default_rng(0).standard_normal((len(KNOWN) + 1, UNITS)).astype(np.float32)
KEYS = [*(IDS[number] for number in KNOWN), "a stranger"]
TRAINING = document({"kind": "adam", "learning_rate": 0.1}, epochs=1, shards=4, evaluation=None)


def from_file(path, layer="taste", **more):
    """The network with vectors from a file at one of its layers."""
    file = {"kind": "file", "path": str(path), **more}
    return {
        "layers": [
            {**each, "initializer": file, "frozen": True} if each["name"] == layer else each
            for each in UNTIED["layers"]
        ]
    }


@pytest.fixture
def written(tmp_path):
    def write(suffix, numbers=NUMBERS, keys=KEYS):
        path = tmp_path / f"vectors{suffix}"
        if suffix == ".npz":
            np.savez(path, key=np.array(keys), vector=numbers)
        elif suffix == ".txt":
            lines = [
                f"{key}\t{' '.join(map(repr, row.tolist()))}" for key, row in zip(keys, numbers, strict=True)
            ]
            path.write_text("\n".join(lines), encoding="utf-8")
        else:
            table = pa.table({"key": keys, "vector": numbers.tolist()})
            if suffix == ".parquet":
                pq.write_table(table, path)
            else:
                with pa.ipc.new_file(path, table.schema) as writer:
                    writer.write_table(table)
        return path

    return write


def weights(run, name):
    return rows(Model.load(run).network)[name, "weight"]


@pytest.mark.parametrize(
    ("suffix", "layer", "name"),
    [
        *((suffix, "taste", "taste/history") for suffix in (".npz", ".parquet", ".arrow")),
        (".txt", "next", "next"),
    ],
)
def test_features_begin_with_the_vectors_of_their_ids_and_others_as_initialized(
    suffix, layer, name, written, tmp_path
):
    data, heard, path = books(tmp_path / "data", item_ids=IDS, titles=None), Heard(), written(suffix)
    train(from_file(path, layer, scale=0.5), TRAINING, data, tmp_path / "run", report=heard)
    drawn = {
        "layers": [
            {**each, "frozen": each["name"] == layer} if each is not UNTIED["layers"][0] else each
            for each in UNTIED["layers"]
        ]
    }
    train(drawn, TRAINING, data, tmp_path / "drawn")
    expected = weights(tmp_path / "drawn", name).clone()
    expected[KNOWN] = torch.from_numpy(NUMBERS[:-1]) * 0.5
    assert torch.equal(weights(tmp_path / "run", name), expected)
    assert heard.said[0] == (
        f'{path}: 4 of 31 features of field "items" begin with its vectors; 27 have none and begin as'
        " initialized."
    )


def test_features_without_names_are_known_by_their_numbers(tmp_path):
    numbers = np.random.default_rng(1).standard_normal((WIDTH, UNITS)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", numbers)
    data = books(tmp_path / "data", titles=None)
    train(from_file(tmp_path / "vectors.npy"), TRAINING, data, tmp_path / "run")
    assert torch.equal(weights(tmp_path / "run", "taste/history"), torch.from_numpy(numbers))


def trained(path, data, out):
    return train(from_file(path), TRAINING, data, out).fingerprint()


def test_every_number_of_processes_gives_the_bits_of_one(written, tmp_path, groups):
    books(tmp_path / "data", item_ids=IDS, titles=None)
    path = written(".npz")
    one = trained(path, tmp_path / "data", tmp_path / "one")
    assert groups(3)(trained, path, tmp_path / "data", tmp_path / "3") == [one] * 3


def test_a_resumed_run_needs_the_file_no_more(written, tmp_path):
    data, path = books(tmp_path / "data", item_ids=IDS, titles=None), written(".npz")
    network, training = from_file(path), {**TRAINING, "epochs": 2}
    whole = train(network, training, data, tmp_path / "whole").fingerprint()
    with pytest.raises(KeyboardInterrupt):
        train(network, training, data, tmp_path / "run", after_epoch=lambda *_: True)
    path.unlink()
    assert train(None, None, data, tmp_path / "run", resume=True).fingerprint() == whole


REFUSED = {
    "another length": (NUMBERS[:, :4], KEYS, FitError),
    "no id": (NUMBERS[:1], ["a stranger"], FitError),
    "a key twice": (NUMBERS, [*KEYS[:-1], KEYS[0]], DataError),
    "no number": (np.full_like(NUMBERS, np.nan), KEYS, DataError),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_other_vectors_are_refused(refused, written, tmp_path):
    numbers, keys, error = REFUSED[refused]
    data = books(tmp_path / "data", item_ids=IDS, titles=None)
    path = written(".npz", numbers, keys)
    with mistake(error, place='layers[1].initializer ("taste")'):
        train(from_file(path), TRAINING, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_vectors_must_be_finite_after_their_scale(written, tmp_path):
    data = books(tmp_path / "data", item_ids=IDS, titles=None)
    path = written(".txt", np.where(np.arange(5)[:, None] == 2, np.float32(1e30), NUMBERS))
    with mistake(DataError, place='layers[1].initializer ("taste")', line=3):
        train(from_file(path, scale=1e20), TRAINING, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_line_of_another_form_names_the_layer_and_what_to_write(tmp_path):
    data, path = books(tmp_path / "data", item_ids=IDS, titles=None), tmp_path / "glove.txt"
    path.write_text("the 0.1 0.2 0.3 0.4 0.5 0.6\n")
    with mistake(DataError, place='layers[1].initializer ("taste")', line=1):
        train(from_file(path), TRAINING, data, tmp_path / "run")


def started(path, data, out):
    """Begin a run with vectors from a file that ends before its first checkpoint."""
    specs = NetworkSpec.of(from_file(path), "network"), TrainingSpec.of(TRAINING, "training")
    layout = bind(*specs, data.fields)
    with RunDirectory.begin(out, layout, data, vectors=check_vectors(layout, data)):
        pass


def resumed(data, out):
    with pytest.raises(DataError) as raised:
        train(None, None, data, out, resume=True)
    return str(raised.value)


def test_a_run_without_a_checkpoint_is_resumed_with_the_same_file_alone(written, tmp_path, groups):
    data, path = books(tmp_path / "data", item_ids=IDS, titles=None), written(".npz")
    whole = train(from_file(path), TRAINING, data, tmp_path / "whole").fingerprint()
    for name in ("run", "same"):
        started(path, data, tmp_path / name)
    assert train(None, None, data, tmp_path / "same", resume=True).fingerprint() == whole
    written(".npz", NUMBERS + 1)
    said = groups(2)(resumed, tmp_path / "data", tmp_path / "run")
    assert said == [said[0]] * 2
    assert "vectors.npz" in said[0]


def test_a_file_wins_over_a_run_to_begin_with(written, tmp_path):
    data, path = books(tmp_path / "data", item_ids=IDS, titles=None), written(".npz")
    train(UNTIED, TRAINING, data, tmp_path / "base")
    train(from_file(path), TRAINING, data, tmp_path / "run", start_from=tmp_path / "base")
    found = weights(tmp_path / "run", "taste/history")
    assert torch.equal(found[KNOWN], torch.from_numpy(NUMBERS[:-1]))
    rest = [row for row in range(WIDTH) if row not in KNOWN]
    assert torch.equal(found[rest], weights(tmp_path / "base", "taste/history")[rest])


def test_a_missing_file_is_refused_before_a_run_begins(tmp_path):
    data = books(tmp_path / "data", item_ids=IDS, titles=None)
    with mistake(DataError):
        train(from_file(tmp_path / "none.npz"), TRAINING, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pickled_keys_are_refused(tmp_path):
    path = tmp_path / "vectors.npz"
    np.savez(path, key=np.array(KEYS, dtype=object), vector=NUMBERS)
    data = books(tmp_path / "data", item_ids=IDS, titles=None)
    with mistake(DataError, place=path):
        train(from_file(path), TRAINING, data, tmp_path / "run")


def test_a_layer_without_a_vector_for_each_feature_cannot_name_a_file(tmp_path):
    data = books(tmp_path / "data", item_ids=IDS, titles=None)
    file = {"kind": "file", "path": "vectors.npz"}
    deep = {"name": "deep", "units": 6, "initializer": file}
    network = {"layers": [*UNTIED["layers"][:2], deep, UNTIED["layers"][2]]}
    with mistake(FitError):
        train(network, TRAINING, data, tmp_path / "run")
    tied = {**UNTIED["layers"][2], "initializer": file, "weights": {"layer": "taste", "transposed": True}}
    with mistake(FitError):
        train({"layers": [*UNTIED["layers"][:2], tied]}, TRAINING, data, tmp_path / "run")
