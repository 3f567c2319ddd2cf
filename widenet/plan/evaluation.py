"""What the evaluation of a training asks for, as far as the two documents tell."""

from widenet.errors import DocumentError, FitError, OptionError
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import LARGER_IS_BETTER, check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def check_evaluation(network: NetworkSpec, training: TrainingSpec) -> tuple[OutputLayer, int] | None:
    """The output that is ranked, and the k of the metric; None without an evaluation.

    Raises DocumentError, FitError.
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
        rule = f"must be one of which more is better ({', '.join(LARGER_IS_BETTER)})"
        raise DocumentError(f'{place}.metric {rule}; got "{evaluation.metric}". Use "ndcg@{k}".')
    return output, k
