"""The commands that a person may give next, their paths quoted for a shell where they need it."""

import shlex
from typing import TYPE_CHECKING

from widenet.stores.uri import is_uri

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec


def after_training(
    run: str, data: str, dataset: "Dataset", network: "NetworkSpec", training: "TrainingSpec", cut: str = ""
) -> str:
    """Return the line with the commands for a trained run: `predict`, and `evaluate` if a part is set aside.

    Args:
        run: Path or URI of the run.
        data: Path or URI of its dataset.
        dataset: The opened dataset.
        network: The network of the run.
        training: The training of the run.
        cut: Path of the dataset with a validation part that the training has made of `data`, if it has.
    """
    parts = dataset.fields[network.outputs[0].field].parts
    evaluation = training.evaluation
    ranks_seen = evaluation is not None and evaluation.seen == "include"
    seen = " --include-seen" if ranks_seen or network.outputs[0].repeats is not None else ""
    evaluated, part = data, ""
    if "heldout" not in parts:
        evaluated, part = cut or data, " --part validation"
    has_part = {"heldout", "validation"} & {*parts}
    evaluate = f"{shlex.join(['widenet', 'evaluate', run, '--data', evaluated])}{seen}{part}, or "
    predict = f"{shlex.join(['widenet', 'predict', run, '--data', data])}{seen} --out recommendations.parquet"
    return f"Next: {evaluate if has_part else ''}{predict}"


def other_term(run: str, dataset: "Dataset", network: "NetworkSpec") -> str | None:
    """Return the line with the command that looks for a better neighbourhood term; None if it would not help.

    Args:
        run: Path or URI of the run.
        dataset: The dataset that the training has read.
        network: The network of the run.
    """
    *others, output = network.outputs
    has_part = bool(dataset.fields[output.field].num_entries.get("validation"))
    term = output.neighbourhood
    if others or term is None or term.fit or not has_part or is_uri(run):
        return None
    command = shlex.join(["widenet", "neighbourhood", run, "--out", f"{run}-near"])
    return f"Perhaps better lists, without a new training: {command}"
