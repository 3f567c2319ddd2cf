"""Trains a network in the executors of a Spark session."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

from widenet.errors import OptionError, WidenetError
from widenet.parallel.heartbeat import TIMEOUT_SECONDS
from widenet.run_arguments import TrainArguments
from widenet.runs.prepared import prepared
from widenet.runs.training import train as train_here
from widenet.spark.session import check_executors, shared_path
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def train(
    network: NetworkSpec | Mapping[str, Any] | str | Path | None,
    training: TrainingSpec | Mapping[str, Any] | str | Path | None,
    data: str | Path,
    out: str | Path,
    *,
    processes: int,
    resume: bool = False,
    start_from: str | Path | None = None,
    device: str = "cpu",
    timeout: float = TIMEOUT_SECONDS,
) -> str:
    """Train a network in processes that `TorchDistributor` starts on executors, in barrier mode.

    The weights are those of `widenet train`, with any number of processes. Each process has as many threads
    as `spark.task.cpus` says.

    Args:
        network: network.json: its path, its values, or a document; None for a default.
        training: training.json likewise.
        data: The dataset directory. This and the other paths must be on a file system that the driver and all
            executors share.
        out: The run directory to make.
        processes: Number of processes, at most the number of shards; each takes a task's slot.
        resume: Resume from the newest checkpoint of `out`.
        start_from: Start with the weights of another run.
        device: "cpu" or "cuda"; for "cuda", Spark must give each task a GPU.
        timeout: As for `widenet.train`.

    Returns:
        The fingerprint of the trained weights.

    Raises:
        DocumentError, DataError, FitError, CapacityError, OptionError: The documents, the dataset, the
            executors or an option does not allow the training.
        CheckpointError, NumericsError, DisagreementError, GroupError: The training could not continue.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise OptionError("`train` needs a Spark session. Start one by `SparkSession.builder.getOrCreate()`.")
    data, out = shared_path("data", data), shared_path("out", out)
    start_from = None if start_from is None else shared_path("start_from", start_from)
    arguments = TrainArguments(network, training, data, out, resume=resume, start_from=start_from)
    with prepared(arguments) as (layout, dataset):
        if not 1 <= processes <= layout.num_shards:
            raise OptionError(
                f"`processes` must be 1 to the number of shards, {layout.num_shards}; got {processes}."
            )
        check_executors(spark, data)
        words = {"resume": resume, "start_from": start_from, "device": device, "timeout": timeout}
        distributor = TorchDistributor(num_processes=processes, local_mode=False, use_gpu=device == "cuda")
        threads = spark.conf.get("spark.task.cpus", "1")
        outcome = distributor.run(
            _trained, threads, layout.network, layout.training, dataset.path, out, words
        )
    if isinstance(outcome, WidenetError):
        raise outcome
    return str(outcome)


def _trained(
    threads: str, network: NetworkSpec, training: TrainingSpec, data: Path, out: Path, words: dict[str, Any]
) -> str | WidenetError:
    """Train as one process of the group, and return the fingerprint, or the mistake for the driver."""
    os.environ.setdefault("WIDENET_THREADS", threads)
    try:
        return train_here(network, training, data, out, **words).fingerprint()
    except WidenetError as error:
        return error
