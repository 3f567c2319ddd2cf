"""Pruned runs, made of trained ones: of each vector some numbers, for everything but training."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from widenet.arguments import typed
from widenet.errors import OptionError
from widenet.model.network import Network
from widenet.model.part import Part
from widenet.model.pruned_part import PrunedPart
from widenet.plan.pruning import is_prunable
from widenet.runs.documents import path_of
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import bits_of, nonzeros_of


@typed
def prune(run: str | Path, out: str | Path, nonzeros: int | None = None, overwrite: bool = False) -> Model:
    """Make a pruned run of a trained one.

    Of each vector of sparse inputs and outputs, only its numbers of the largest magnitude are stored, with
    their places. All else stays. Of a run that was trained with "pruning", the others are zeros, so that the
    new run is the same model.

    Args:
        run: The trained run.
        out: The run directory to make.
        nonzeros: Numbers of each vector that stay. Default: those of "pruning" in the run's training.json.
        overwrite: Replace an earlier run at `out`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is pruned or in 8 bits already, has no longer vectors, or `nonzeros` is missing.
    """
    source = RunDirectory.open(path_of("run", run))
    trained = source.training.pruning
    kept = trained.nonzeros if nonzeros is None and trained is not None else nonzeros
    if kept is None:
        raise OptionError(
            f'`nonzeros` is missing: {source.path} was not trained with "pruning". Name how many numbers of'
            " each vector stay."
        )
    if kept < 1:
        raise OptionError(f"`nonzeros` must be at least 1; got {kept:,}.")
    check, shrink = partial(_check_weights, nonzeros=kept), partial(keep_largest, nonzeros=kept)
    return saved_made_of(run, out, overwrite, check, shrink, {"nonzeros": kept})


def keep_largest(network: Network, nonzeros: int) -> None:
    """Store only the largest numbers of the rows of sparse inputs and outputs, one matrix at a time."""
    for name, weight in network.wide.items():
        if is_prunable(network.layout.weights[name], nonzeros):
            weight.parts = dict(network.exchange.each(partial(_pruned, weight.parts, nonzeros)))


def _pruned(parts: Mapping[int, Part], nonzeros: int, shard: int) -> tuple[int, Part]:
    return shard, PrunedPart.of(parts[shard], nonzeros)


def _check_weights(model: Model, nonzeros: int) -> None:
    """Raise OptionError if a run cannot be pruned."""
    path = model.run.path
    if (bits := bits_of(model.facts)) is not None:
        raise OptionError(f"{path} is in {bits} bits. Use it as it is, or the run that it was made of.")
    if nonzeros_of(model.facts) is not None:
        raise OptionError(f"{path} is pruned already. Use it as it is, or the run that it was made of.")
    weights = model.network.layout.weights.values()
    if not any(weight.has_vectors for weight in weights):
        raise OptionError(
            f"{path} has no hidden layer on a sparse input and no output behind hidden layers, whose vectors"
            " could be pruned. Use the run as it is."
        )
    if not any(is_prunable(weight, nonzeros) for weight in weights):
        raise OptionError(
            f"{path} has no vectors of more than {nonzeros:,} numbers, of sparse inputs or of outputs after"
            " hidden layers. Lower `nonzeros`, or use the run as it is."
        )
