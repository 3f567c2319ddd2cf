"""Checks the evaluation of a training against the two documents."""

from widenet.errors import DocumentError, FitError, OptionError
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import LARGER_IS_BETTER, check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_evaluation(network: NetworkSpec, training: TrainingSpec) -> tuple[OutputLayer, int] | None:
    """Return the output to rank, and the k of the metric; None without an evaluation.

    Raises:
        DocumentError: The metric is unknown, or less of it is better.
        FitError: The network has no such output, or several without a choice.
    """
    evaluation = training.evaluation
    if evaluation is None:
        return None
    place = f"{training.where}: evaluation"
    names = [layer.name for layer in network.outputs]
    if evaluation.output is None and len(names) > 1:
        raise FitError(f"{place}.output must name one of the outputs: {', '.join(names)}.")
    output = next((layer for layer in network.outputs if layer.name == (evaluation.output or names[0])), None)
    if output is None:
        raise FitError(f'{place}.output must be one of {", ".join(names)}; got "{evaluation.output}".')
    try:
        k = check_metric(evaluation.metric)
    except OptionError as error:
        raise DocumentError(f"{place}.metric: {error}") from None
    if evaluation.metric.partition("@")[0] not in LARGER_IS_BETTER:
        rule = f"must be a metric that is better when larger ({', '.join(LARGER_IS_BETTER)})"
        raise DocumentError(f'{place}.metric {rule}; got "{evaluation.metric}". Use "ndcg@{k}".')
    return output, k
