"""Evaluation of a trained model, with intervals, kept in its run directory if asked."""

from collections.abc import Mapping
from typing import Any

from widenet.checkpoint import writing
from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.evaluate import evaluate, output_name
from widenet.metrics.kept import Evaluated, keep
from widenet.metrics.ranking import Metrics
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.parallel.threads import fixed_arithmetic
from widenet.run_arguments import EvaluateArguments
from widenet.stores import cache
from widenet.training.run_directory import RunDirectory


def check_keeps(run: RunDirectory, facts: Mapping[str, Any]) -> None:
    """Raise OptionError if a run cannot keep evaluations; `facts` are those of its weights."""
    if "fingerprint" not in facts:
        raise OptionError(f"`keep` needs finished weights; {run.path} has none. Finish the training first.")
    if cache.holds(run.path):
        raise OptionError("`keep` needs a run on the disk; this one is in a store. Leave it out.")


def evaluated(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    dataset: Dataset,
    arguments: EvaluateArguments,
) -> Metrics:
    """Evaluate a network as `Model.evaluate` is asked to; `facts` are those of its weights."""
    part, output = arguments.part, arguments.output
    with fixed_arithmetic():
        metrics = evaluate(
            network,
            dataset,
            part,
            arguments.ks,
            output,
            arguments.exclude_seen,
            arguments.advance,
            keep_users=arguments.keep or arguments.interval is not None,
        )
    if metrics.users is not None and arguments.interval is not None:
        metrics.intervals = metrics.users.intervals(arguments.interval)
    if arguments.keep:
        field = network.outputs[output_name(network, output)].spec.field
        of = Evaluated(part, dataset.digest, field, bool(arguments.exclude_seen))

        def write() -> None:
            with writing(run.path):
                keep(run.path, of, str(facts["fingerprint"]), metrics)

        by_leader(network.exchange, write, "evaluation")
    return metrics
