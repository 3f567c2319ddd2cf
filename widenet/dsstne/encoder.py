"""DSSTNE's command `encoder`: what a command file asks for, a training or a measurement."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.data.dataset import Dataset
from widenet.dsstne.data import import_data
from widenet.dsstne.model import import_model
from widenet.dsstne.spec.network import without_comments
from widenet.dsstne.spec.settings import Settings
from widenet.dsstne.train import SEED, train
from widenet.dsstne.validate import validate
from widenet.errors import DataError, DocumentError
from widenet.parallel.threads import one_thread_an_operation
from widenet.predict.rows import rows_a_block
from widenet.predict.top_k import top_k
from widenet.spec.document import Document
from widenet.training.reports import Report

BATCH_SIZE, MOST = 1024, 10
_USUAL_INTERVAL = 20
"""AlphaInterval, in epochs, of a training that gives none or 0."""
_KEYS = ("Version", "Network", "Data", "RandomSeed", "Command", "TrainingParameters")
_TRAINING_KEYS = (
    "Epochs",
    "Alpha",
    "AlphaInterval",
    "AlphaMultiplier",
    "mu",
    "Lambda",
    "CheckpointInterval",
    "CheckpointName",
    "Optimizer",
    "Results",
)
_COMMANDS = {"Train": "train", "Predict": "predict", "Validate": "validate"}


class _CommandFile(Document):
    """Reads what stands in a command file; its fields are those of DSSTNE."""

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """The plain values in some JSON text with comments."""
        return super().values_of(without_comments(text), where)


def encoder(path: Path, report: Report) -> list[str]:
    """Do what a command file says, Train, Predict or Validate; gives lines to print.

    Those of Predict are "k,precision,recall,ndcg" for k from 1 to 10; those of Validate say what it found of
    each weight. Files are named from the working directory. Raises DocumentError, DataError, OptionError, and
    what a training raises.
    """
    given = Settings(_CommandFile.read_values(path), str(path), _KEYS)
    for key in ("Network", "Data", "Command"):
        if key not in given:
            raise DocumentError(f'{path}: {key} is missing. Add "{key}".')
    command = given.choice("Command", _COMMANDS, "")
    network, data = Path(given.text("Network")), Path(given.text("Data"))
    seed = int(given.number("RandomSeed", SEED, 0))
    if command == "validate":
        return validate(network, data, seed, BATCH_SIZE)
    if command == "predict":
        return [
            f"{k}," + ",".join(f"{number:6.4f}" for number in numbers)
            for k, numbers in enumerate(measure(network, data), start=1)
        ]
    asked = given.within("TrainingParameters", _TRAINING_KEYS)
    if "Epochs" not in asked:
        raise DocumentError(f'{path}: TrainingParameters.Epochs is missing. Add "Epochs".')
    settings = training_of(asked) | {"seed": seed}
    train(
        network,
        [data],
        Path(asked.text("Results", "network.nc")),
        settings,
        report,
        checkpoint=Path(asked.text("CheckpointName", "check")),
    )
    return []


def training_of(asked: Settings) -> dict[str, Any]:
    """The values of a training document that a command file's training parameters stand for.

    As in DSSTNE, a training lasts for whole AlphaIntervals, of 20 epochs if the rate stays: 10 epochs become
    20.
    """
    kind = asked.choice("Optimizer", {"sgd": "sgd", "nesterov": "nesterov"}, "sgd")
    optimizer: dict[str, Any] = {"kind": kind, "learning_rate": asked.number("Alpha", 0.1, 0)}
    if kind == "nesterov":
        optimizer["momentum"] = asked.number("mu", 0.9, 0)
    interval = int(asked.number("AlphaInterval", 0, 0))
    phase = interval or _USUAL_INTERVAL
    spoken = {
        "epochs": -(-int(asked.number("Epochs", 1, 1)) // phase) * phase,
        "batch_size": BATCH_SIZE,
        "optimizer": optimizer,
        "l2": asked.number("Lambda", 0.001, 0),
        "checkpoints": {"every_epochs": int(asked.number("CheckpointInterval", 1, 1))},
    }
    if interval:
        spoken["schedule"] = {
            "kind": "step",
            "every_epochs": interval,
            "factor": asked.number("AlphaMultiplier", 0.5, 0, 1),
        }
    return spoken


def measure(network: Path, data: Path) -> NDArray[np.float64]:
    """Precision, recall and NDCG of a trained network's best 1 to 10 units, means over all examples of a
    file: float64 [10, 3].

    The file has the data sets "input" and "output". Seen features are not left out, and the ideal of NDCG has
    all targets at the top, however many: both as in DSSTNE. An example without targets counts as 0.
    """
    with TemporaryDirectory() as folder, one_thread_an_operation():
        import_data([data], Path(folder) / "data", targets=["output"])
        dataset = Dataset.open(Path(folder) / "data")
        if "input" not in dataset.fields:
            raise DataError(
                f'{data}: must have a data set "input"; got {", ".join(dataset.fields)}. Write it under that'
                " name."
            )
        model = import_model(network, Path(folder) / "run", data=dataset)
        output = next(
            (layer.name for layer in model.run.network.outputs if layer.name == "Output"),
            model.run.network.outputs[0].name,
        )
        found, fields = np.zeros((MOST, 3)), [layer.field for layer in model.run.network.inputs]
        for rows in _blocks(dataset.num_examples, rows_a_block(MOST)):
            inputs = {name: dataset.rows(name, rows) for name in fields}
            best_EK = top_k(model.network, inputs, output, MOST)[1].numpy()
            truth = dataset.sparse("output", rows, "train")
            parts = np.split(truth.indices.numpy(), truth.indptr.numpy()[1:-1])
            found += np.sum(
                [_scores(best, targets) for best, targets in zip(best_EK, parts, strict=True)], axis=0
            )
        return found / dataset.num_examples


def _scores(best_K: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Precision, recall and NDCG of one example at every k, float64 [10, 3]."""
    found = np.zeros((MOST, 3))
    hits_K = np.zeros(MOST)
    hits_K[: len(best_K)] = np.isin(best_K, targets)
    if len(targets):
        gains, ideal = hits_K / np.log2(np.arange(MOST) + 2), (1 / np.log2(np.arange(len(targets)) + 2)).sum()
        found[:] = np.stack(
            [
                np.cumsum(hits_K) / np.arange(1, MOST + 1),
                np.cumsum(hits_K) / len(targets),
                np.cumsum(gains) / ideal,
            ],
            axis=1,
        )
    return found


def _blocks(num: int, size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, num, size):
        yield np.arange(start, min(start + size, num))
