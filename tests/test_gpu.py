"""What only a CUDA device can show: a training on it, twice the same bits, and near to that of a CPU."""

import pytest
import torch

from tests import sequences
from tests.simulated import cases
from tests.trainings import SETTINGS, books, document, tied_near
from widenet import Model, dataset_from_lists
from widenet.kernels.steps import KINDS
from widenet.model import triton_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

ROWS = [sorted({(7 * e + 3 * i * i) % 211 for i in range(1 + e % 40)}) for e in range(300)]


def trained(folder, name, device, activation="softmax", loss="cross_entropy", **training):
    if not (folder / "data").exists():
        dataset_from_lists(folder / "data", ROWS, width=211)
    documents = cases.with_loss(activation, loss), {"batch_size": 64, **training}
    return cases.trained(documents, folder / "data", folder / name, device, epochs=3)


PRECISIONS = ["float32", "tf32", "bfloat16"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("optimizer", KINDS)
def test_a_training_gives_the_same_bits_twice(optimizer, activation, precision, tmp_path):
    asked = {"activation": activation, "optimizer": optimizer, "precision": precision}
    assert len({trained(tmp_path, name, "cuda", **asked).fingerprint() for name in ("one", "two")}) == 1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_no_bit_depends_on_the_number_of_shards_at_once(activation, precision, tmp_path, monkeypatch):
    found = set()
    for number in (1, 2, 4, 8):
        monkeypatch.setattr(triton_step, "SHARDS_AT_ONCE", number)
        run = trained(tmp_path, f"run-{number}", "cuda", activation=activation, precision=precision, shards=8)
        found.add(run.fingerprint())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("activation", "loss"),
    [("softmax", "cross_entropy"), ("sigmoid", "cross_entropy"), ("relu_max", "l2")],
)
def test_a_training_is_near_that_of_a_cpu(activation, loss, tmp_path):
    ours, cpus = (
        trained(tmp_path, place, place, activation=activation, loss=loss) for place in ("cuda", "cpu")
    )
    assert cases.weights_of(ours) == pytest.approx(cases.weights_of(cpus), rel=1e-3, abs=1e-4)


def test_the_best_units_are_those_that_a_cpu_finds(tmp_path):
    trained(tmp_path, "run", "cuda")
    found = [
        Model.load(tmp_path / "run", device=device).recommend(["3", "5"], k=50) for device in ("cuda", "cpu")
    ]
    assert [one.item for one in found[0]] == [one.item for one in found[1]]


NEAR = {
    "with neighbours": (tied_near(neighbours=3, weight=0.5), document("adam", evaluation=None)),
    "with a fitted term": (tied_near(fit=True), document("adam", evaluation={"metric": "ndcg@3"})),
}
MANY = cases.CASES | SETTINGS | NEAR
ALONG = [name for name in sequences.SETTINGS if "bfloat16" not in name]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=12)


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    return sequences.write(tmp_path_factory.mktemp("sequences") / "data", examples=9)


@pytest.mark.parametrize("name", MANY)
def test_a_training_with_any_feature_gives_the_same_bits_twice(name, data, tmp_path):
    once, again = (cases.trained(MANY[name], data, tmp_path / run, "cuda") for run in ("one", "two"))
    assert once.fingerprint() == again.fingerprint()


@pytest.mark.parametrize("name", sequences.SETTINGS)
def test_a_training_along_a_sequence_gives_the_same_bits_twice(name, histories, tmp_path):
    documents = sequences.documents(name)
    once, again = (cases.trained(documents, histories, tmp_path / run, "cuda") for run in ("one", "two"))
    assert once.fingerprint() == again.fingerprint()


@pytest.mark.parametrize("name", ALONG)
def test_a_training_along_a_sequence_is_near_that_of_a_cpu(name, histories, tmp_path):
    ours, cpus = (
        cases.trained(sequences.documents(name), histories, tmp_path / device, device, epochs=1)
        for device in ("cuda", "cpu")
    )
    assert cases.weights_of(ours) == pytest.approx(cases.weights_of(cpus), rel=1e-3, abs=1e-4)


def test_a_neighbourhood_is_trained_chosen_and_asked_as_on_a_cpu(data, tmp_path):
    ours, cpus = (
        cases.trained(MANY["with neighbours"], data, tmp_path / device, device) for device in ("cuda", "cpu")
    )
    assert cases.weights_of(ours) == pytest.approx(cases.weights_of(cpus), rel=1e-3, abs=1e-4)
    found = [Model.load(tmp_path / "cuda", device=device) for device in ("cuda", "cpu")]
    best, expected = ([one.item for one in model.recommend(["3", "5"], k=9)] for model in found)
    assert best == expected
    told, asked = (model.evaluate(data, part="validation", ks=[3]) for model in found)
    assert told == asked
