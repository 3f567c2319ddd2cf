"""DSSTNE's command `encoder`, which trains and predicts by a command file."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.data.dataset import Dataset
from widenet.dsstne.data import import_data
from widenet.dsstne.model_import import import_model
from widenet.dsstne.spec.network import without_comments
from widenet.dsstne.spec.settings import Settings
from widenet.dsstne.train import SEED, train
from widenet.errors import DataError, DocumentError
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.restrictions import rows_a_block
from widenet.predict.top_k import top_k
from widenet.spec.document import Document
from widenet.training.state import Report

BATCH_SIZE, MAX_K = 1024, 10
_DEFAULT_INTERVAL = 20
"""AlphaInterval in epochs if the command file has none, or 0."""
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
_COMMANDS = {"Train": "train", "Predict": "predict"}


class _CommandFile(Document):
    """Reads a command file; its fields are DSSTNE's."""

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """Return the plain values of JSON text with comments."""
        return super().values_of(without_comments(text), where)


def encoder(path: Path, report: Report) -> list[str]:
    """Run a command file, Train or Predict, and return the lines to print.

    Args:
        path: The command file. The paths in it are relative to the working directory.
        report: Receives the progress of a training.

    Returns:
        For Predict, "k,precision,recall,ndcg" for k from 1 to 10.

    Raises:
        DocumentError, DataError, OptionError: A file or setting is wrong.
        WidenetError: The training fails.
    """
    settings = Settings(_CommandFile.read_values(path), str(path), _KEYS)
    for key in ("Network", "Data", "Command"):
        DocumentError.require(key in settings, f"{key} is missing", place=path)
    command = settings.choice("Command", _COMMANDS, "")
    network, data = Path(settings.text("Network")), Path(settings.text("Data"))
    if command == "predict":
        return [
            f"{k}," + ",".join(f"{number:6.4f}" for number in numbers)
            for k, numbers in enumerate(measure(network, data), start=1)
        ]
    parameters = settings.within("TrainingParameters", _TRAINING_KEYS)
    DocumentError.require("Epochs" in parameters, "TrainingParameters.Epochs is missing", place=path)
    train(
        network,
        [data],
        Path(parameters.text("Results", "network.nc")),
        training_of(parameters) | {"seed": int(settings.number("RandomSeed", SEED, 0))},
        report,
        checkpoint=Path(parameters.text("CheckpointName", "check")),
    )
    return []


def training_of(parameters: Settings) -> dict[str, Any]:
    """Return the values of a training document that equal a command file's training parameters.

    As in DSSTNE, the number of epochs is rounded up to whole AlphaIntervals. An interval has 20 epochs if the
    rate never changes, so 10 epochs become 20.
    """
    kind = parameters.choice("Optimizer", {"sgd": "sgd", "nesterov": "nesterov"}, "sgd")
    optimizer: dict[str, Any] = {"kind": kind, "learning_rate": parameters.number("Alpha", 0.1, 0)}
    if kind == "nesterov":
        optimizer["momentum"] = parameters.number("mu", 0.9, 0)
    interval = int(parameters.number("AlphaInterval", 0, 0))
    phase = interval or _DEFAULT_INTERVAL
    training = {
        "epochs": -(-int(parameters.number("Epochs", 1, 1)) // phase) * phase,
        "batch_size": BATCH_SIZE,
        "optimizer": optimizer,
        "l2": parameters.number("Lambda", 0.001, 0),
        "checkpoints": {"every_epochs": int(parameters.number("CheckpointInterval", 1, 1))},
    }
    if interval:
        training["schedule"] = {
            "kind": "step",
            "every_epochs": interval,
            "factor": parameters.number("AlphaMultiplier", 0.5, 0, 1),
        }
    return training


def measure(network: Path, data: Path) -> NDArray[np.float64]:
    """Return the mean precision, recall and NDCG of a network's best 1 to 10 units, float64 [10, 3].

    As in DSSTNE, features of the input are not excluded, and NDCG's ideal ranking counts all targets, also
    beyond the tenth. An example without targets counts as 0.

    Args:
        network: The trained network, NetCDF.
        data: NetCDF file with the data sets "input" and "output".
    """
    with TemporaryDirectory() as folder, fixed_arithmetic():
        import_data([data], Path(folder) / "data", targets=["output"])
        dataset = Dataset.open(Path(folder) / "data")
        DataError.require(
            "input" in dataset.fields,
            'must have a data set "input"',
            place=data,
            value=", ".join(dataset.fields),
        )
        model = import_model(network, Path(folder) / "run", data=dataset)
        output = next(
            (layer.name for layer in model.run.network.outputs if layer.name == "Output"),
            model.run.network.outputs[0].name,
        )
        total, fields = np.zeros((MAX_K, 3)), [layer.field for layer in model.run.network.inputs]
        for start in range(0, dataset.num_examples, rows_a_block(MAX_K)):
            rows = np.arange(start, min(start + rows_a_block(MAX_K), dataset.num_examples))
            inputs = {name: dataset.rows(name, rows) for name in fields}
            best_EK = top_k(model.network, inputs, output, MAX_K)[1].numpy()
            truth = dataset.sparse("output", rows, "train")
            parts = np.split(truth.indices.numpy(), truth.indptr.numpy()[1:-1])
            total += np.sum(
                [_scores(best, targets) for best, targets in zip(best_EK, parts, strict=True)], axis=0
            )
        return total / dataset.num_examples


def _scores(best_K: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return precision, recall and NDCG of one example at every k, float64 [10, 3]."""
    hits_K = np.zeros(MAX_K)
    hits_K[: len(best_K)] = np.isin(best_K, targets)
    if not len(targets):
        return np.zeros((MAX_K, 3))
    gains, ideal = hits_K / np.log2(np.arange(MAX_K) + 2), (1 / np.log2(np.arange(len(targets)) + 2)).sum()
    hits_K = np.cumsum(hits_K)
    return np.stack(
        [hits_K / np.arange(1, MAX_K + 1), hits_K / len(targets), np.cumsum(gains) / ideal], axis=1
    )
