"""Keras on TensorFlow with multi-hot input.

This module imports neither torch nor widenet, so it can run in an environment of its own.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.steps.histories import batches, histories

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


def train(
    folder: str, hidden: Sequence[int], softmax: bool, batch: int, optimizer: str, threads: int
) -> Callable[[int], dict[str, Any]]:
    """Return steps of `train_on_batch` over dense batches made from CSR.

    `fit` over a `PyDataset` is slower.
    """
    import keras
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    keras.utils.set_random_seed(0)
    matrix = histories(folder)
    width = matrix.shape[1]
    trunk = [keras.layers.Dense(units, "sigmoid") for units in hidden]
    model = keras.Sequential([keras.Input((width,)), *trunk, keras.layers.Dense(width)])
    rules = {
        "sgd": lambda: keras.optimizers.SGD(0.1),
        "adam": lambda: keras.optimizers.Adam(0.001),
        "rmsprop": lambda: keras.optimizers.RMSprop(0.001, rho=0.99, epsilon=1e-8),
    }
    rule = rules[optimizer]()
    if softmax:
        loss: Any = keras.losses.CategoricalCrossentropy(from_logits=True)
    else:
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=rule, loss=loss)
    stream = batches(matrix, batch)

    def steps(number: int) -> dict[str, Any]:
        value = 0.0
        for _ in range(number):
            x = next(stream).toarray()
            value = float(model.train_on_batch(x, x / x.sum(axis=1, keepdims=True) if softmax else x))
        return {"loss": value if softmax else value * width}

    return steps
