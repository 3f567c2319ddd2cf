"""Weights in bfloat16 and state in 8 bits: which ones, their bytes, and what they do not go with."""

from collections.abc import Iterator

from widenet.errors import FitError, OptionError
from widenet.plan.layout import Layout, Weight
from widenet.plan.tiles import BLOCK
from widenet.plan.windows import Place
from widenet.spec.training import TrainingSpec

_BFLOAT16 = 2
"""Bytes of a number."""


def is_rounded(training: TrainingSpec, weight: Weight) -> bool:
    """Return whether a weight is stored in bfloat16."""
    return training.weight_precision == "bfloat16" and weight.has_vectors


def row_bytes(training: TrainingSpec, weight: Weight) -> int:
    """Return the bytes of a row as it is stored."""
    return _BFLOAT16 * weight.row_length if is_rounded(training, weight) else weight.row_bytes


def state_row_bytes(training: TrainingSpec, weight: Weight) -> int:
    """Return the bytes of a row's state as it is stored, if the weight is trained."""
    tensors = len(training.optimizer.state)
    if not is_rounded(training, weight):
        return tensors * weight.row_bytes
    of_one = weight.row_bytes
    if training.state_precision == "float8":
        of_one = weight.row_length + blocks_of_row(weight.row_length)
    lost = _BFLOAT16 * weight.row_length if training.weight_rounding == "compensated" else 0
    return tensors * of_one + lost


def blocks_of_row(columns: int) -> int:
    """Return the number of blocks of a row in 8 bits, which have an exponent each."""
    return -(-columns // BLOCK)


def copied_row_bytes(training: TrainingSpec, weight: Weight) -> int:
    """Return the bytes of float32 copies of a row and its state, on which a step works; 0 without copies."""
    return (1 + len(training.optimizer.state)) * weight.row_bytes if is_rounded(training, weight) else 0


def check_rounded(layout: Layout) -> None:
    """Raise FitError if a training in bfloat16 has a weight or a setting that does not go with it."""
    if layout.training.weight_precision == "float32":
        return
    where = f'{layout.training.where}: weight_precision "bfloat16"'
    for reason in _reasons(layout):
        raise FitError(f'{where} {reason}, or train in "float32".')
    if not any(is_rounded(layout.training, weight) for weight in layout.weights.values()):
        raise FitError(
            f"{where} is for the vectors of sparse inputs and of outputs over hidden layers; the network has"
            " none. Remove it."
        )


def _reasons(layout: Layout) -> Iterator[str]:
    """Yield what of a layout does not go with weights in bfloat16."""

    def place(weight: Weight, key: str) -> str:
        return Place.find(layout.network, layout.network.layer(weight.layer)).of(key)

    for weight in layout.weights.values():
        if weight.by_columns:
            yield (
                "needs a hidden layer between an output and a sparse input; got none at"
                f" {place(weight, 'source')}. Add one"
            )
        if weight.describes is not None:
            yield (
                "does not go with vectors that follow attributes, for a step moves all of them; got"
                f" {place(weight, 'described_by')}. Remove it"
            )
        if weight.has_vectors and weight.norm_limit is not None:
            yield (
                "does not go with a limit on lengths, which rounding exceeds; got"
                f" {place(weight, 'weight_norm')}. Remove it"
            )
        if weight.has_vectors and not weight.trained:
            yield f"would round frozen vectors; got {place(weight, 'frozen')}. Set it to false"


def check_place(training: TrainingSpec, device: str, weights_in: str) -> None:
    """Raise OptionError if a device or a place does not take weights in bfloat16."""
    if training.weight_precision == "float32":
        return
    where = f'{training.where}: weight_precision "bfloat16"'
    if device != "cpu":
        raise OptionError(
            f'{where} needs the device "cpu"; got "{device}". Add `device=\'cpu\'`, or train in "float32".'
        )
    if weights_in != "device":
        raise OptionError(
            f'{where} keeps its weights in memory; got `weights_in` "{weights_in}". Leave one of them out.'
        )
