"""Checks a training before its first step."""

from widenet.data.dataset import Dataset
from widenet.errors import FitError
from widenet.plan.binding import bind
from widenet.plan.evaluation import check_evaluation
from widenet.plan.job import check_replicas
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_training(network: NetworkSpec, training: TrainingSpec, dataset: Dataset) -> Layout:
    """Bind the documents of a training to its dataset and return the layout.

    Raises:
        DocumentError: The evaluation's metric is unknown.
        FitError: The documents and the dataset do not go together.
    """
    layout = bind(network, training, dataset.fields)
    check_replicas(training, dataset.num_examples)
    ranked = check_evaluation(network, training)
    if ranked is None or training.evaluation is None:
        return layout
    (output, _), part = ranked, training.evaluation.part
    field = dataset.field(output.field)
    if field.kind == "dense":
        place = f"{training.where}: evaluation"
        raise FitError(
            f'{place} needs a sparse field; output "{output.name}" predicts the dense field'
            f' "{output.field}". Remove it.'
        )
    if part not in field.parts:
        remedy = f'Set one aside with `{dataset.split_call(field, part)}`, or remove "evaluation"'
        raise FitError(f"{dataset.without(field, part)}. {remedy} from {training.where}.")
    if not field.num_entries[part]:
        where = f'{dataset.path}: the {part} part of field "{output.field}"'
        raise FitError(f"{where} has no entries. Split again, with a larger share.")
    return layout
