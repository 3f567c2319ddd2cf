"""Pictures from end to end: a small convolutional network learns digits, and the example AlexNet trains."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

import widenet
from tests.parallel.workers import exchange
from widenet.checkpoint import fingerprint
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.stream import Stream
from widenet.model.build import build
from widenet.model.by_examples import own_examples
from widenet.model.rule import StepNumbers
from widenet.model.step_random import StepRandom
from widenet.parallel.local import LocalExchange
from widenet.parallel.threads import one_thread_an_operation
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.optimizers import Optimizer
from widenet.training.schedules import rates
from widenet.training.step import Step, train_step

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


@pytest.mark.filterwarnings("ignore:.*does not hold the examples")
def test_a_small_convolutional_network_learns_digits_with_the_same_bits_each_time(mnist, tmp_path):
    pixels, labels = digits(mnist, "train", 500)
    shown = dataset_from_lists(tmp_path / "shown", labels, width=10, dense={"pixels": pixels})
    pixels, labels = digits(mnist, "t10k", 400)
    new = dataset_from_lists(tmp_path / "new", [[]] * 400, heldout=labels, width=10, dense={"pixels": pixels})
    models = [
        widenet.train(DIGITS, TRAINING, shown, tmp_path / name, device="cpu") for name in ("one", "two")
    ]
    assert models[0].evaluate(new, ks=[1])["recall@1"] > 0.85
    assert models[0].fingerprint() == models[1].fingerprint()
    assert widenet.Model.load(tmp_path / "one", device="cpu").evaluate(new, ks=[1]) == models[0].evaluate(
        new, ks=[1]
    )


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


def alexnet(places, batch_size):
    """The example's documents for pictures of some places, its convolutions divided by examples."""
    document = json.loads((ROOT / "examples" / "alexnet" / "network.json").read_text("utf-8"))
    document["layers"][0]["shape"] = [3, places, places]
    document["layers"][1]["split"] = True
    training = json.loads((ROOT / "examples" / "alexnet" / "training.json").read_text("utf-8"))
    return NetworkSpec.of(document), TrainingSpec.of(training | {"batch_size": batch_size})


def steps_of_alexnet(folder, exchanged):
    """The losses of two steps of the example on small pictures, and the fingerprint."""
    data, (network, training) = Dataset.open(folder), alexnet(99, 8)
    built, rule = (
        build(bind(network, training, data.fields), exchanged, counts={}),
        Optimizer(training.optimizer),
    )
    built.prepare_training(rule)
    stream, losses = (
        Stream(data, network.fields, 8, training.seed, own=own_examples(built.layout, exchanged)),
        [],
    )
    for batch in stream.batches(0):
        random, numbers = StepRandom(0, 0, batch.step), StepNumbers(batch.step + 1, rates(training, 2))
        losses.append(train_step(built, rule, Step(built.prepare(batch.fields, random), random, numbers)))
    return losses, fingerprint(built)


def steps_here(folder):
    return steps_of_alexnet(folder, exchange())


@pytest.fixture(scope="module")
def small_pictures(tmp_path_factory):
    """16 pictures of 99 x 99, and the losses and the fingerprint of one process."""
    folder, chance = tmp_path_factory.mktemp("small") / "data", np.random.default_rng(0)
    pixels = chance.random((16, 3 * 99 * 99), dtype=np.float32).tolist()
    dataset_from_lists(folder, [[number % 5] for number in range(16)], width=8, dense={"pixels": pixels})
    with one_thread_an_operation():
        return folder, steps_of_alexnet(folder, LocalExchange(8, 2))


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.long) for size in (2, 4)), 8])
def test_the_example_alexnet_has_one_fingerprint_for_every_number_of_processes(size, small_pictures, groups):
    folder, alone = small_pictures
    assert groups(size)(steps_here, folder) == [alone] * size
