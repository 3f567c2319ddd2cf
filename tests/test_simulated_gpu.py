"""Trainings on a simulated CUDA device: nothing there is refused, and the numbers are those of a CPU."""

import json
import os
import subprocess
import sys
from concurrent.futures import wait
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests import sequences
from tests.simulated import kernels
from tests.simulated.cases import CASES, trained, weights_of
from tests.simulated.device import OnDevice, products, simulated
from tests.trainings import SETTINGS, WIDTH, books
from widenet import Model, dataset_from_lists
from widenet.kernels import native
from widenet.knn.neighbours import Neighbours
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.predict.top_k import Tiles
from widenet.runs import Silence
from widenet.training import loop
from widenet.training.loop import Saving

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device is at hand")


@pytest.fixture
def torch_alone(monkeypatch):
    """No Triton and no native library, so that a CPU computes as the simulated device does."""
    monkeypatch.setattr(native, "has_triton", lambda: False)
    monkeypatch.setattr(native, "library", lambda: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=12)


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize("name", CASES)
def test_a_training_has_the_bits_that_torch_gives_on_a_cpu(name, data, tmp_path):
    expected = trained(CASES[name], data, tmp_path / "cpu", "cpu", epochs=1).fingerprint()
    with simulated():
        model = trained(CASES[name], data, tmp_path / "cuda", "cuda", epochs=1)
        assert all(
            isinstance(part.weight, OnDevice)
            for weight in model.network.wide.values()
            for part in weight.parts.values()
        )
        assert model.fingerprint() == expected


@pytest.fixture
def tf32_elsewhere():
    """The program has asked torch for TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.usefixtures("torch_alone", "tf32_elsewhere")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", ["sigmoid", "embedded", "convolution"])
def test_products_are_rounded_as_the_training_says_and_nowhere_else(precision, name, data, tmp_path):
    if name == "sigmoid":
        documents, written = SETTINGS["rmsprop"], data
    elif name == "embedded":
        documents = sequences.documents("embedded lstm over a sample, rmsprop")
        written = sequences.write(tmp_path / "data", examples=9)
    else:
        documents, written = (PICTURES, {"batch_size": 4, "shards": 2}), pictures(tmp_path / "data")
    network, training = documents
    training = {**training, "precision": precision, "evaluation": None, "keep": "last"}
    with simulated():
        model = trained((network, training), written, tmp_path / "cuda", "cuda", epochs=1)
        assert set(products) == {precision}
        products.clear()
        if name == "sigmoid":
            model.recommend(["3", "5"], k=4)
            assert set(products) == {"float32"}
    assert torch.backends.cuda.matmul.allow_tf32


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize(
    "name",
    [
        "gru with a layer above and a label, adamw",
        "embedded lstm over a sample, rmsprop",
        "split gru and lstm in bfloat16, adam",
        "tied attention, adam",
    ],
)
def test_so_have_sequences(name, tmp_path):
    written = sequences.write(tmp_path / "data", examples=9)
    documents = sequences.documents(name)
    expected = trained(documents, written, tmp_path / "cpu", "cpu", epochs=1).fingerprint()
    with simulated():
        assert trained(documents, written, tmp_path / "cuda", "cuda", epochs=1).fingerprint() == expected


PICTURES = {
    "layers": [
        {"name": "picture", "kind": "input", "field": "pixels", "shape": [1, 6, 6], "dropout": 0.1},
        {
            "name": "edges",
            "kind": "convolution",
            "filters": 3,
            "kernel": 3,
            "activation": "relu",
            "batch_normalization": True,
        },
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {"name": "mean", "kind": "pooling", "function": "average", "kernel": 2, "stride": 1},
        {"name": "next", "kind": "output", "field": "items", "delta_norm": 0.5},
    ]
}


def pictures(path):
    pixels = torch.rand(7, 36, generator=torch.Generator().manual_seed(0)).tolist()
    return dataset_from_lists(path, [[row % 3] for row in range(7)], width=3, dense={"pixels": pixels})


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize("is_divided", [False, True])
def test_so_have_convolutions(is_divided, tmp_path):
    written = pictures(tmp_path / "data")
    divided = {"batch_normalization": False, "filters": 40, "split": True}
    layers = [
        layer | (divided if is_divided and layer["name"] == "edges" else {}) for layer in PICTURES["layers"]
    ]
    training = {"batch_size": 4, "shards": 2, "optimizer": "momentum", "l2": 0.01}
    training["gradient_norm_limit"] = 0.5 if is_divided else None
    documents = {"layers": layers}, training
    expected = trained(documents, written, tmp_path / "cpu", "cpu").fingerprint()
    with simulated():
        assert trained(documents, written, tmp_path / "cuda", "cuda").fingerprint() == expected


@pytest.mark.usefixtures("torch_alone")
def test_a_run_on_it_is_resumed_evaluated_and_asked_as_on_a_cpu(data, tmp_path, monkeypatch):
    # Each kind of device has its own number of rows in a product, and a CPU adds up the divisor of a softmax
    # in an order of its own.
    monkeypatch.setitem(PREDICTED_ROWS, "cuda", PREDICTED_ROWS["cpu"])
    monkeypatch.setattr(Tiles, "add_to", lambda own, summed, logits_ET: summed.add(logits_ET, own.rows))
    documents = SETTINGS["rmsprop, sampled"]
    expected = trained(documents, data, tmp_path / "cpu", "cpu")
    with simulated():
        asked = iter([False, False, True])
        with pytest.raises(KeyboardInterrupt):
            trained(documents, data, tmp_path / "cuda", "cuda", interrupted=lambda: next(asked))
        trained(documents, data, tmp_path / "cuda", "cuda", resume=True)
        model = Model.load(tmp_path / "cuda", device="cuda")
        assert model.fingerprint() == expected.fingerprint()
        for each in (model, expected):
            answers = (
                each.evaluate(data, part="validation", ks=[3]),
                each.recommend(["3", "5"], k=4),
                each.recommend(users="2", data=data, k=WIDTH),
                [(block.users, block.items, block.scores.tolist()) for block in each.predict(data, k=3)],
            )
            neighbours = Neighbours.of_model(each, "next")
            answers += tuple(found.tolist() for found in neighbours.search(neighbours.vectors([0, 7]), k=5))
            if each is model:
                found = answers
        assert found == answers


@pytest.mark.usefixtures("torch_alone")
def test_a_snapshot_comes_to_the_host_in_pinned_memory_and_is_resumed_to_the_same_bits(
    data, tmp_path, monkeypatch
):
    network, training = SETTINGS["adam, split"]
    documents = network, {**training, "checkpoints": {"every_epochs": 9, "every_steps": 1}}
    expected = trained((network, training), data, tmp_path / "cpu", "cpu", epochs=3).fingerprint()
    monkeypatch.setattr(
        Saving, "is_writing", lambda own: own.work is not None and bool(wait([own.work]).not_done)
    )
    copies, copied = {}, loop.copied
    monkeypatch.setattr(loop, "copied", lambda *own: copies.update(copied(*own)) or copies.items())

    class Crash(Silence):
        def advance(self, *_):
            if any((tmp_path / "cuda" / "checkpoints").glob("epoch-00001-step-00000000[1-9]")):
                raise RuntimeError("a crash")

    with simulated():
        with pytest.raises(RuntimeError, match="a crash"):
            trained(documents, data, tmp_path / "cuda", "cuda", epochs=3, report=Crash())
        assert all(
            copy.pinned and not isinstance(copy, OnDevice)
            for file in copies.values()
            for name, copy in file.items()
            if not name.startswith("damping.")  # factors of features never leave the host
        )
        assert (
            trained(documents, data, tmp_path / "cuda", "cuda", epochs=3, resume=True).fingerprint()
            == expected
        )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton runs on Linux only")
def test_trainings_through_the_kernels_are_near_those_of_a_cpu(data, tmp_path):
    """No bit depends on room for logits or weights, or on how many shards are in a launch, and a step waits
    for the device once. A further tile of all shards of a softmax takes six launches, in bfloat16 one more,
    and a step of DSSTNE's network 40 at most.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # Triton's interpreter is chosen before Triton is imported.
    own = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "WIDENET_THREADS": "1"}
    command = [sys.executable, "-m", "tests.simulated.kernels", str(data.path), str(tmp_path / "cuda")]
    ended = subprocess.run(command, env=own, cwd=ROOT, capture_output=True, check=True)
    lines = iter([json.loads(line) for line in ended.stdout.splitlines()])
    for name, documents in kernels.NEAR.items():
        expected = weights_of(trained(documents, data, tmp_path / name, "cpu", epochs=1))
        assert next(lines) == pytest.approx(expected, rel=0.02 if name == "bfloat16" else 2e-5, abs=1e-4)
    rooms = [next(lines) for _ in kernels.ROOMS]
    assert [len(set(same)) for same in rooms] == [1] * len(rooms)
    assert len({fingerprint for fingerprint, *_ in rooms}) == len(rooms)
    norms = "training/step.py:norm_of_squares"  # of the last step of an epoch alone
    for _ in kernels.WAITS:
        waits = {place: times for place, times in next(lines).items() if place != norms}
        assert waits == {"training/step.py:train_step": 1}
    assert [len(set(fingerprints)) for fingerprints in next(lines)] == [1] * len(kernels.TOGETHER)
    *of_a_tile, of_a_step = next(lines)
    assert of_a_tile == [6, 7]
    assert of_a_step <= 40
