"""Trainings on a simulated CUDA device: nothing there is refused, and the numbers are those of a CPU."""

import os
from importlib.util import find_spec

import pytest
import torch

from tests import sequences
from tests.simulated import streams
from tests.simulated.device import OnDevice, simulated
from tests.simulated.refusals import OrderError
from tests.trainings import SETTINGS, WIDTH, books, document
from widenet import Model, Network, Training, dataset_from_lists, train
from widenet.kernels import devices
from widenet.knn.neighbours import Neighbours
from widenet.model.losses import cross_entropy
from widenet.training import optimizers

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device is at hand")

if find_spec("triton") is not None and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # see tests/kernels/triton/conftest.py
    from widenet.kernels.triton import fixed_point, running_top_k, softmax_pulls, softmax_sums, softmax_tile, steps, tile_targets  # noqa: F401

    del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def torch_alone(monkeypatch):
    """No Triton, and no Numba, so that a CPU computes as the simulated device does."""
    for module in (devices, optimizers):
        monkeypatch.setattr(module, "has_triton", lambda: False)
    monkeypatch.setattr(optimizers, "compiled", lambda *_: None)
    monkeypatch.setattr(cross_entropy, "compiled_softplus_sum", lambda: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=12)


def trained(documents, data, out, device, **more):
    network, training = documents
    return train(Network.of(network), Training.of({**training, "epochs": 2}), data, out, device=device, **more)


LOSSES = {
    ("sigmoid", "cross_entropy"): {},
    ("tanh", "hinge"): {"delta_norm": 0.5},
    ("linear", "l2"): {"delta_boost": {"target": 2.0, "other": 0.5}},
    ("relu_max", "l1"): {},
    ("sigmoid", "scaled_marginal_cross_entropy"): {"others": "ignore"},
}


def with_loss(activation, loss, **more):
    output = {"name": "next", "kind": "output", "field": "items", "activation": activation, "loss": loss, **more}
    return {"layers": [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 5}, output]}


PLAIN = ("momentum", "nesterov", "adam, normalized", "sgd, drifting", "sgd, l2, tied, sampled", "adagrad, tied")
CASES = {name: SETTINGS[name] for name in PLAIN}
CASES |= {loss: (with_loss(activation, loss, **more), document("adam", evaluation=None)) for (activation, loss), more in LOSSES.items()}
CASES["bfloat16"] = (SETTINGS["rmsprop"][0], document("adamw", precision="bfloat16", evaluation=None))


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize("name", CASES)
def test_a_training_has_the_bits_that_torch_gives_on_a_cpu(name, data, tmp_path):
    expected = trained(CASES[name], data, tmp_path / "cpu", "cpu").fingerprint()
    with simulated():
        model = trained(CASES[name], data, tmp_path / "cuda", "cuda")
        assert all(isinstance(part.weight, OnDevice) for weight in model.network.wide.values() for part in weight.parts.values())
        assert model.fingerprint() == expected


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize("name", ["gru with a layer above and a label, adamw", "embedded lstm over a sample, rmsprop"])
def test_so_have_sequences(name, tmp_path):
    written = sequences.write(tmp_path / "data", examples=9)
    expected = trained(sequences.documents(name), written, tmp_path / "cpu", "cpu").fingerprint()
    with simulated():
        assert trained(sequences.documents(name), written, tmp_path / "cuda", "cuda").fingerprint() == expected


PICTURES = {
    "layers": [
        {"name": "picture", "kind": "input", "field": "pixels", "shape": [1, 6, 6], "dropout": 0.1},
        {"name": "edges", "kind": "convolution", "filters": 3, "kernel": 3, "activation": "relu", "batch_normalization": True},
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {"name": "mean", "kind": "pooling", "function": "average", "kernel": 2, "stride": 1},
        {"name": "next", "kind": "output", "field": "items", "delta_norm": 0.5},
    ]
}


@pytest.mark.usefixtures("torch_alone")
def test_so_have_convolutions(tmp_path):
    pixels = torch.rand(7, 36, generator=torch.Generator().manual_seed(0)).tolist()
    written = dataset_from_lists(tmp_path / "data", [[row % 3] for row in range(7)], width=3, dense={"pixels": pixels})
    documents = PICTURES, {"batch_size": 4, "shards": 2, "optimizer": "momentum", "l2": 0.01}
    expected = trained(documents, written, tmp_path / "cpu", "cpu").fingerprint()
    with simulated():
        assert trained(documents, written, tmp_path / "cuda", "cuda").fingerprint() == expected


@pytest.mark.usefixtures("torch_alone")
def test_a_run_on_it_is_resumed_evaluated_and_asked_as_on_a_cpu(data, tmp_path):
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
                each.recommend_for("2", data, k=WIDTH),
                [(block.users, block.items, block.scores.tolist()) for block in each.predict(data, k=3)],
            )
            neighbours = Neighbours.of_model(each, "next")
            answers += tuple(found.tolist() for found in neighbours.search(neighbours.vectors([0, 7]), k=5))
            if each is model:
                found = answers
        assert found == answers


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton runs on Linux only")
@pytest.mark.parametrize("name", ["adam, tied", "rmsprop", "cross_entropy", "bfloat16"])
def test_a_training_through_the_kernels_is_near_that_of_a_cpu(name, data, tmp_path, monkeypatch):
    expected = trained((CASES | SETTINGS)[name], data, tmp_path / "cpu", "cpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(running_top_k, "LEAST", 2)
    with simulated():
        found = trained((CASES | SETTINGS)[name], data, tmp_path / "cuda", "cuda")
        for weight, own in expected.network.wide.items():
            for shard, part in own.parts.items():
                near = found.network.wide[weight].parts[shard].weight.cpu()
                assert torch.allclose(near, part.weight, rtol=0.02 if name == "bfloat16" else 2e-5, atol=1e-4)


def test_what_cuda_refuses_is_refused():
    with simulated():
        numbers, own = torch.zeros(3, device="cuda"), torch.zeros(3)
        places = torch.zeros(2, dtype=torch.int64, device="cuda")
        values = torch.tensor([1.0, 2.0], device="cuda")
        assert (numbers + torch.tensor(1.0)).device.type == "cuda"
        for strange in (lambda: numbers + own, lambda: own.add_(numbers), lambda: numbers.index_select(0, places.cpu())):
            with pytest.raises(RuntimeError, match="same device"):
                strange()
        with pytest.raises(TypeError, match="cuda:0"):
            numbers.numpy()
        for adding in (
            lambda: numbers.index_add_(0, places, values),
            lambda: numbers.index_put_((places,), values),
            lambda: numbers.cumsum(0),
            lambda: numbers.sort(),
        ):
            with pytest.raises(OrderError):
                adding()
        assert numbers.long().index_add_(0, places, places + 1).tolist() == [2, 0, 0]


def test_a_stream_that_has_not_waited_is_refused():
    with simulated():
        second = torch.cuda.Stream()
        with torch.cuda.stream(second):
            numbers = torch.zeros(3, device="cuda")
        with pytest.raises(streams.StreamError, match="not waited"):
            numbers + 1
        torch.cuda.current_stream().wait_stream(second)
        with pytest.raises(streams.StreamError, match="nobody has recorded"):
            numbers + 1
        numbers.record_stream(torch.cuda.current_stream())
        assert (numbers + 1).tolist() == [1, 1, 1]
