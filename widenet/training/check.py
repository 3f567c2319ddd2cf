"""What can be known to end a training before its first step."""

from widenet.data.dataset import Dataset
from widenet.errors import FitError
from widenet.plan.binding import bind
from widenet.plan.evaluation import check_evaluation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_training(network: NetworkSpec, training: TrainingSpec, dataset: Dataset) -> int:
    """Raise what would end a training before its first step; the k of its evaluation's metric, or 0
    without an evaluation.
    """
    bind(network, dataset.fields)
    asked = check_evaluation(network, training)
    if asked is None or training.evaluation is None:
        return 0
    (output, k), part = asked, training.evaluation.part
    if dataset.field(output.field).kind == "dense":
        place = f"{training.where}: evaluation"
        raise FitError(
            f'{place} needs a sparse field; output "{output.name}" asks for the dense "{output.field}".'
            " Remove it."
        )
    dataset.entry_counts(output.field, slice(0), part)
    if not dataset.field(output.field).num_entries[part]:
        where = f'{dataset.path}: the {part} part of field "{output.field}"'
        raise FitError(f"{where} has no entries. Split again, with a larger share.")
    return k
