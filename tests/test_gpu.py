"""What only a CUDA device can show: a training on it, twice the same bits, and near to that of a CPU."""

import pytest
import torch

from widenet import Model, Network, Training, dataset_from_lists, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

ROWS = [sorted({(7 * e + 3 * i * i) % 211 for i in range(1 + e % 40)}) for e in range(300)]


def trained(folder, name, device, activation="softmax", loss="cross_entropy", **training):
    if not (folder / "data").exists():
        dataset_from_lists(folder / "data", ROWS, width=211)
    output = {"name": "next", "kind": "output", "field": "items", "activation": activation, "loss": loss}
    network = {
        "layers": [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 37}, output]
    }
    spec = Training.of({"epochs": 3, "batch_size": 64, **training})
    return train(Network.of(network), spec, folder / "data", folder / name, device=device)


def weights(model: Model):
    return torch.cat(
        [
            part.weight.flatten().cpu()
            for weight in model.network.wide.values()
            for part in weight.parts.values()
        ]
    )


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize(
    "optimizer", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw"]
)
def test_a_training_gives_the_same_bits_twice(optimizer, activation, precision, tmp_path):
    asked = {"activation": activation, "optimizer": optimizer, "precision": precision}
    assert len({trained(tmp_path, name, "cuda", **asked).fingerprint() for name in ("one", "two")}) == 1


@pytest.mark.parametrize(
    ("activation", "loss"),
    [("softmax", "cross_entropy"), ("sigmoid", "cross_entropy"), ("relu_max", "l2")],
)
def test_a_training_is_near_that_of_a_cpu(activation, loss, tmp_path):
    ours, cpus = (
        weights(trained(tmp_path, device, device, activation=activation, loss=loss))
        for device in ("cuda", "cpu")
    )
    assert torch.allclose(ours, cpus, rtol=1e-3, atol=1e-4)


def test_the_best_units_are_those_that_a_cpu_finds(tmp_path):
    trained(tmp_path, "run", "cuda")
    found = [
        Model.load(tmp_path / "run", device=device).recommend(["3", "5"], k=50) for device in ("cuda", "cpu")
    ]
    assert [one.item for one in found[0]] == [one.item for one in found[1]]
