"""The commands that a person may give next."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec


def after_training(
    run: str, data: str, dataset: "Dataset", network: "NetworkSpec", training: "TrainingSpec"
) -> str:
    """Return the line with the commands for a trained run: `predict`, and `evaluate` if a part is set aside.

    Args:
        run: The run, as commands name it.
        data: Its dataset, as commands name it.
        dataset: The opened dataset.
        network: The network of the run.
        training: The training of the run.
    """
    parts = dataset.fields[network.outputs[0].field].parts
    evaluation = training.evaluation
    seen = " --include-seen" if evaluation is not None and evaluation.seen == "include" else ""
    words = f"{run} --data {data}{seen}"
    part = " --part validation" if "heldout" not in parts else ""
    evaluate = f"widenet evaluate {words}{part}, or " if {"heldout", "validation"} & {*parts} else ""
    return f"Next: {evaluate}widenet predict {words} --out recommendations.parquet"
