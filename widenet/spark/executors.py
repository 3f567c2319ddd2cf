"""Trains a network in the executors of a Spark session."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

from widenet.errors import OptionError, WidenetError
from widenet.parallel.launch import TIMEOUT_SECONDS
from widenet.runs.documents import prepared
from widenet.runs.run_arguments import TrainArguments
from widenet.runs.training import run_training
from widenet.spark.session import check_executors, shared_place
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory


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
            executors share, or be URIs of an object store, such as s3://lake/books.
        out: The run directory to make. At a URI, executors need nothing in common but the store.
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
        CheckpointError, NumericsError, DisagreementError, GroupError, StoreError: The training could not
            continue.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise OptionError("there must be an active Spark session")
    data, out = shared_place("data", data), shared_place("out", out)
    start_from = None if start_from is None else shared_place("start_from", start_from)
    if resume and isinstance(out, Path):
        RunDirectory.open(out)  # refused here unless there is a run; one in a store is, when it is copied
    arguments = TrainArguments(network, training, data, out, resume=resume, start_from=start_from)
    with prepared(arguments, cuts=False) as (layout, _):
        if not 1 <= processes <= layout.num_shards:
            raise OptionError(
                f"must be 1 to the number of shards, {layout.num_shards}", option="processes", value=processes
            )
    check_executors(spark, data, *(place for place in (out, start_from) if isinstance(place, str)))
    documents = (
        None if network is None else layout.network,  # executors make the defaults, and what these need
        None if training is None else layout.training,
    )
    words = {"resume": resume, "start_from": start_from, "device": device, "timeout": timeout}
    distributor = TorchDistributor(num_processes=processes, local_mode=False, use_gpu=device == "cuda")
    threads = spark.conf.get("spark.task.cpus", "1")
    outcome, sentences = distributor.run(_trained, threads, *documents, data, out, words)
    if isinstance(outcome, WidenetError):
        raise outcome
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=2)
    return str(outcome)


def _trained(
    threads: str,
    network: NetworkSpec | None,
    training: TrainingSpec | None,
    data: Path | str,
    out: Path | str,
    words: dict[str, Any],
) -> tuple[str | WidenetError, list[str]]:
    """Train as one process of the group.

    Returns:
        The fingerprint, or the mistake for the driver; and what was set aside for validation, in a sentence.
    """
    os.environ.setdefault("WIDENET_THREADS", threads)
    said: list[str] = []
    arguments = TrainArguments(network, training, data, out, **words)
    try:
        with prepared(arguments, said.append) as (layout, dataset):
            return run_training(layout, dataset, arguments).fingerprint(), said
    except WidenetError as error:
        return error, said
