"""Comparison of two trained models on the same users."""

from widenet.arguments import with_fields_of
from widenet.baselines.evaluate import check_part, evaluate
from widenet.data.dataset import Dataset
from widenet.metrics.comparison import Comparison, compared
from widenet.metrics.ranking import Metrics, check_ks
from widenet.parallel.threads import fixed_arithmetic
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.evaluating import warn_of_trained
from widenet.runs.model import Model
from widenet.runs.run_arguments import CompareArguments
from widenet.training.in_common import check_same_dataset
from widenet.training.run_directory import RunDirectory


@with_fields_of(CompareArguments, Dataset)
def compare(arguments: CompareArguments) -> Comparison:
    """Compare the rankings of two runs for the same users, metric by metric.

    Each run ranks for every user who has entries in the part. The differences of the users give the interval
    of the mean difference, by a paired bootstrap, and the p-value, by a sign-flip permutation test. As with
    `Model.evaluate`, every process of a group must call this, and all get the same bits.

    Returns:
        Both means, their difference, its interval and its p-value for each metric.

    Warns:
        UserWarning: A run was trained on entries of the part.

    Raises:
        CheckpointError: A run does not exist, has no model, or is damaged.
        FitError: The dataset does not fit a run, or the runs predict other users' items.
        OptionError: An argument is wrong.
    """
    check_part(arguments.part)
    check_ks(arguments.ks)
    dataset = dataset_of(arguments.data)
    for run in (arguments.first, arguments.second):
        RunDirectory.open(path_of("run", run)).check_dataset(dataset)
    first, second = (_metrics(str(run), dataset, arguments) for run in (arguments.first, arguments.second))
    return compared(first, second, arguments.level)


def _metrics(run: str, dataset: Dataset, arguments: CompareArguments) -> Metrics:
    """Evaluate one of the runs, with the metrics of each user."""
    part, output = arguments.part, arguments.output
    model = Model.load(run, arguments.device, timeout=arguments.timeout)
    network = model.network
    check_same_dataset(network.exchange, dataset)
    warn_of_trained(model.run, network, model.facts, dataset, part, output)
    with fixed_arithmetic():
        return evaluate(
            network,
            dataset,
            part,
            arguments.ks,
            output,
            arguments.exclude_seen,
            arguments.advance,
            keep_users=True,
        )
