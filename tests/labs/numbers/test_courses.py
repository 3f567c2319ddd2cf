"""Errors of courses are those of the networks, on pictures that they did not learn from."""

import gzip

import numpy as np
import pytest

from labs import mnist
from labs.mnist import Digits, digits
from labs.numbers import courses
from labs.numbers.lab import epochs, wrong


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """300 pictures, in files as MNIST's: those of a class share their bright pixels."""
    generator = np.random.default_rng(0)
    labels = np.arange(300, dtype=np.uint8) % 10
    pixels = (generator.random((300, 784)) < 0.1 + 0.8 * (np.arange(784) % 10 == labels[:, None])) * np.uint8(
        255
    )
    (tmp_path / "mnist").mkdir()
    for kind, header, array in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
        packed = gzip.compress(bytes(header) + array.tobytes())
        (tmp_path / "mnist" / f"train-{kind}-ubyte.gz").write_bytes(packed)
    monkeypatch.setattr(mnist, "DATA", tmp_path)
    monkeypatch.setattr(courses, "TRAINED", 200)
    monkeypatch.setattr(courses, "EPOCHS", (1, 3))


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("arithmetic", courses.COMPARED)
def test_errors_after_some_epochs_are_those_of_shorter_trainings(arithmetic):
    train = digits("train")
    others = Digits(train.pixels[200:], train.labels[200:])
    expected = []
    for count in courses.EPOCHS:
        course = courses.Course(pictures=200, epochs=count, batch_size=32, rate=0.05)
        *_, learner = epochs(arithmetic, 0, course)
        expected.append(wrong(learner, others))
    assert courses.errors(arithmetic, 0.05) == expected
    assert expected[-1] < 50
