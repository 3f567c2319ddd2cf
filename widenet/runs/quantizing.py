"""Runs in 8 bits, made of trained ones: fewer bytes, for everything but training."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from widenet.arguments import typed
from widenet.errors import OptionError
from widenet.model.network import Network
from widenet.model.part import Part
from widenet.model.quantized_part import QuantizedPart, fits_in_8_bits
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.training.saved_facts import in_8_bits


@typed
def quantize(run: str | Path, out: str | Path, overwrite: bool = False) -> Model:
    """Make a run in 8 bits of a trained one.

    The vectors of sparse inputs and outputs become whole numbers, with a scale for each. All else stays.
    Scores then come from exact products of whole numbers, so that neither batches nor threads nor processes
    change them.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is in 8 bits already, or has no weights that could be; or `out` lies in it.
    """
    return saved_made_of(run, out, overwrite, _check_weights, put_in_8_bits, {"in_8_bits": True})


def put_in_8_bits(network: Network) -> None:
    """Put the matrices of sparse inputs and outputs into 8 bits, one at a time."""
    for name, weight in network.wide.items():
        if fits_in_8_bits(network.layout.weights[name]):
            weight.parts = dict(network.exchange.each(partial(_rounded, weight.parts)))


def _rounded(parts: Mapping[int, Part], shard: int) -> tuple[int, Part]:
    return shard, QuantizedPart.of(parts[shard])


def _check_weights(model: Model) -> None:
    """Raise OptionError if a run cannot be put into 8 bits."""
    if in_8_bits(model.facts):
        raise OptionError("is in 8 bits already", place=model.run.path)
    if not any(map(fits_in_8_bits, model.network.layout.weights.values())):
        raise OptionError(
            "has no vectors of sparse inputs, or of outputs after hidden layers, to put into 8 bits",
            place=model.run.path,
        )
