"""Pictures from end to end: a small convolutional network learns digits, and the example AlexNet trains."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

import widenet
from widenet.data.lists import dataset_from_lists

ROOT = Path(__file__).parent.parent
DIGITS = {
    "layers": [
        {"name": "picture", "kind": "input", "field": "pixels", "shape": [1, 28, 28]},
        {
            "name": "edges",
            "kind": "convolution",
            "filters": 8,
            "kernel": 5,
            "stride": 2,
            "activation": "relu",
            "batch_normalization": True,
        },
        {
            "name": "parts",
            "kind": "convolution",
            "filters": 16,
            "kernel": 3,
            "activation": "relu",
            "batch_normalization": True,
        },
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {"name": "digit", "kind": "output", "field": "items"},
    ]
}
TRAINING = {"epochs": 4, "batch_size": 25, "optimizer": {"kind": "adam", "learning_rate": 0.005}}


def digits(folder, part, num):
    """The first pictures of a part of MNIST, as numbers from 0 to 1, and what they show."""
    pixels, labels = (
        np.frombuffer(gzip.decompress((folder / f"{part}-{kind}.gz").read_bytes()), np.uint8)[header:]
        for kind, header in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))
    )
    return (pixels.reshape(-1, 28 * 28)[:num] / 255).tolist(), [[int(label)] for label in labels[:num]]


@pytest.fixture
def mnist():
    folder = Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data")) / "mnist"
    if not folder.is_dir():
        pytest.skip(f"no pictures at {folder}; set WIDENET_DATA")
    return folder


@pytest.mark.filterwarnings("ignore:.*was trained on")
def test_a_small_convolutional_network_learns_digits(mnist, tmp_path):
    pixels, labels = digits(mnist, "train", 500)
    shown = dataset_from_lists(tmp_path / "shown", labels, width=10, dense={"pixels": pixels})
    pixels, labels = digits(mnist, "t10k", 400)
    new = dataset_from_lists(tmp_path / "new", [[]] * 400, heldout=labels, width=10, dense={"pixels": pixels})
    found = widenet.train(DIGITS, TRAINING, shown, tmp_path / "run", device="cpu").evaluate(new, ks=[1])
    assert found["recall@1"] > 0.85
    assert widenet.Model.load(tmp_path / "run", device="cpu").evaluate(new, ks=[1]) == found


@pytest.mark.parametrize("places", [99, pytest.param(227, marks=pytest.mark.long)])
def test_the_example_alexnet_learns_two_pictures(places, tmp_path):
    chance = np.random.default_rng(0)
    pictures = chance.random((2, 3 * places * places), dtype=np.float32).tolist()
    data = dataset_from_lists(tmp_path / "data", [[0], [1]], width=1000, dense={"pixels": pictures})
    text = (ROOT / "examples" / "alexnet" / "network.json").read_text("utf-8")
    assert len(text.splitlines()) <= 33
    document = json.loads(text)
    document["layers"][0]["shape"] = [3, places, places]
    training = json.loads((ROOT / "examples" / "alexnet" / "training.json").read_text("utf-8"))
    widenet.train(document, training | {"epochs": 2}, data, tmp_path / "run", device="cpu")
    losses = [
        json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines()
    ]
    assert losses[0] == pytest.approx(np.log(1000), rel=0.3)
    assert losses[1] < losses[0] / 2
