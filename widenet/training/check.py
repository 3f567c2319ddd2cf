"""What can be known to end a training before its first step."""

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError, OptionError
from widenet.metrics import LARGER_IS_BETTER, check_metric
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_training(network: NetworkSpec, training: TrainingSpec, dataset: Dataset) -> int:
    """Raise what would end a training before its first step; the k of its evaluation's metric, or 0 without an evaluation."""
    bind(network, dataset.fields)
    evaluation = training.evaluation
    if evaluation is None:
        return 0
    place = f"{training.where}: evaluation"
    names = [layer.name for layer in network.outputs]
    if evaluation.output is None and len(names) > 1:
        raise FitError(f"{place}.output must name one of the outputs: {', '.join(names)}.")
    name = evaluation.output or names[0]
    if name not in names:
        raise FitError(f'{place}.output must be one of {", ".join(names)}; got "{name}".')
    field = next(layer.field for layer in network.outputs if layer.name == name)
    if dataset.field(field).kind == "dense":
        raise FitError(f'{place} needs a sparse field; output "{name}" asks for the dense "{field}". Remove it.')
    dataset.entry_counts(field, slice(0), evaluation.part)
    if not dataset.field(field).num_entries[evaluation.part]:
        where = f'{dataset.path}: the {evaluation.part} part of field "{field}"'
        raise FitError(f"{where} has no entries. Split again, with a larger share.")
    try:
        k = check_metric(evaluation.metric)
    except OptionError as error:
        raise DocumentError(f"{place}.metric: {error}") from None
    if evaluation.metric.partition("@")[0] not in LARGER_IS_BETTER:
        rule = f"must be one of which more is better ({', '.join(LARGER_IS_BETTER)})"
        raise DocumentError(f'{place}.metric {rule}; got "{evaluation.metric}". Use "ndcg@{k}".')
    return k
