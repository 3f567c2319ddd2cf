"""Runs in 8 bits or fewer, made of trained ones: fewer bytes, for everything but training."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from widenet.arguments import typed
from widenet.errors import OptionError
from widenet.kernels.quantized import BITS
from widenet.model.network import Network
from widenet.model.part import Part
from widenet.model.quantized_part import PackedPart, QuantizedPart, fits_in_8_bits
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.training.saved_facts import bits_of, nonzeros_of


@typed
def quantize(run: str | Path, out: str | Path, overwrite: bool = False, bits: int = 8) -> Model:
    """Make a run in 8 bits or fewer of a trained one.

    The vectors of sparse inputs and outputs become whole numbers, with a scale for each. All else stays.
    Scores then come from exact products of whole numbers, so that neither batches nor threads nor processes
    change them.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.
        bits: Bits of a number: 2, 3, 4 or 8. Fewer than 8 save bytes on disk, and take more in memory.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is quantized or pruned already, or has no weights that could be; or `out` lies in
            it; or there is no such number of bits.
    """
    if bits not in BITS:
        raise OptionError(f"`bits` must be 2, 3, 4 or 8; got {bits}.")
    facts = {"in_8_bits": True, "bits": bits}
    check = partial(_check_weights, bits_wanted=bits)
    return saved_made_of(run, out, overwrite, check, partial(in_few_bits, bits=bits), facts)


def in_few_bits(network: Network, bits: int = 8) -> None:
    """Put the matrices of sparse inputs and outputs into 8 bits or fewer, one at a time."""
    for name, weight in network.wide.items():
        if fits_in_8_bits(network.layout.weights[name]):
            weight.parts = dict(network.exchange.each(partial(_rounded, weight.parts, bits)))


def _rounded(parts: Mapping[int, Part], bits: int, shard: int) -> tuple[int, Part]:
    part = parts[shard]
    return shard, QuantizedPart.of(part) if bits == 8 else PackedPart.rounded(part, bits)


def _check_weights(model: Model, bits_wanted: int) -> None:
    """Raise OptionError if a run cannot be put into so many bits."""
    if (bits := bits_of(model.facts)) is not None:
        raise OptionError(
            f"{model.run.path} is in {bits} bits already. Use it as it is, or the run that it was made of."
        )
    if nonzeros_of(model.facts) is not None:
        raise OptionError(f"{model.run.path} is pruned. Use it as it is, or the run that it was made of.")
    if bits_wanted < 8 and model.network.layout.training.pruning is not None:
        raise OptionError(
            f"{model.run.path} has vectors of few numbers, and fewer than 8 bits have no zero. Store them"
            " with `widenet prune`, or take `bits=8`."
        )
    if not any(map(fits_in_8_bits, model.network.layout.weights.values())):
        raise OptionError(
            f"{model.run.path} has no vectors of sparse inputs, or of outputs after hidden layers, to put"
            " into 8 bits. Use it as it is."
        )
