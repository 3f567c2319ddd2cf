"""Runs in 8 bits, made of trained ones: about a quarter of the bytes, for everything but training."""

import secrets
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from widenet.arguments import typed
from widenet.checkpoint import writing
from widenet.data.known import RUN_FIELDS
from widenet.durable import force_all_to_disk
from widenet.errors import OptionError
from widenet.model.network import Network
from widenet.model.part import Part
from widenet.model.quantized_part import QuantizedPart, fits_in_8_bits
from widenet.runs.arguments import path_of
from widenet.runs.model import Model
from widenet.stores.uri import check_local
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import DATA, START, check_finished, check_free, locked, put
from widenet.training.saved_facts import are_in_8_bits

_COPIED = ("network.json", "training.json", RUN_FIELDS, "vocabulary", "attributes", "log.jsonl", START)


@typed
def quantize(run: str | Path, out: str | Path) -> Model:
    """Make a run in 8 bits of a trained one.

    The vectors of sparse inputs and outputs become whole numbers from -127 to 127, with a scale for each. All
    else stays. Scores then come from exact products of whole numbers, so that neither batches nor threads nor
    processes change them.

    Args:
        run: The trained run.
        out: The run directory to make.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is in 8 bits already, or has no weights that could be.
    """
    check_local("`out`", out)
    path = path_of("out", out)
    source = RunDirectory.open(path_of("run", run))
    check_finished(source.path)
    check_free(path)
    model = Model.load(source.path, device="cpu")
    _check_weights(model)
    with writing(path):
        _copy(model.run, path)
    try:
        in_8_bits(model.network)
        with locked(path):
            made = RunDirectory.open(path)
            own = {
                name: fact for name, fact in model.facts.items() if name not in ("documents", "fingerprint")
            }
            checkpoint = made.save_model("model", model.network, {**own, "in_8_bits": True})
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return Model(made, model.network, checkpoint.facts)


def in_8_bits(network: Network) -> None:
    """Put the matrices of sparse inputs and outputs into 8 bits, one at a time."""
    for name, weight in network.wide.items():
        if fits_in_8_bits(network.layout.weights[name]):
            weight.parts = dict(network.exchange.each(partial(_rounded, weight.parts)))


def num_bytes(run: str | Path) -> int:
    """Return the bytes of a run's weights on disk."""
    return sum(file["bytes"] for file in RunDirectory.open(path_of("run", run)).model().files.values())


def _rounded(parts: Mapping[int, Part], shard: int) -> tuple[int, Part]:
    return shard, QuantizedPart.of(parts[shard])


def _check_weights(model: Model) -> None:
    """Raise OptionError if a run cannot be put into 8 bits."""
    if are_in_8_bits(model.facts):
        raise OptionError(f"{model.run.path} is in 8 bits already. Use it as it is.")
    if not any(map(fits_in_8_bits, model.network.layout.weights.values())):
        raise OptionError(
            f"{model.run.path} has no vectors of sparse inputs, or of outputs after hidden layers, to put"
            " into 8 bits. Use it as it is."
        )


def _copy(run: RunDirectory, path: Path) -> None:
    """Copy what a run has beside its weights to a new one; raises OSError."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.mkdir(parents=True)
        for name in _COPIED:
            if (run.path / name).is_dir():
                shutil.copytree(run.path / name, beside / name)
            elif (run.path / name).exists():
                shutil.copyfile(run.path / name, beside / name)
        own_data = {"data": str((run.path / DATA).resolve())} if (run.path / DATA).is_dir() else {}
        made = RunDirectory.open(beside)
        made.note_machine({**run.machine, **own_data})
        force_all_to_disk(beside)
        put(beside, path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
