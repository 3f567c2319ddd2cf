"""Evaluation of a trained model, with intervals, kept in its run directory if asked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.evaluate import evaluate, output_name
from widenet.baselines.measure import measured
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.overlap import known_before, trained_on
from widenet.errors import FitError, OptionError, WidenetError, warn_user
from widenet.metrics.kept import Evaluated, keep
from widenet.metrics.propensity import Propensity
from widenet.metrics.ranking import Metrics, check_ks
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.dataset_rows import known_parts
from widenet.runs.run_arguments import EvaluateArguments
from widenet.stores import cache
from widenet.training.checkpoint import Checkpoint, writing
from widenet.training.cut import Cut
from widenet.training.existing_run import WHOLE
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts, facts_of


def warn_of_trained(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    dataset: Dataset,
    part: Part,
    output: str | None,
) -> None:
    """Warn, in the leader, of entries of a part that a run, or one it started from, was trained on.

    Nothing is said where the dataset of a training, or such a run, is missing.

    Args:
        run: The run.
        network: Its network.
        facts: The facts beside its weights.
        dataset: The dataset of an evaluation.
        part: The part.
        output: The output; None for the only one.
    """
    field = network.outputs[output_name(network, output)].spec.field
    if not network.exchange.leads or part == "train" or dataset.field(field).kind == "dense":
        return
    seen: set[Path] = set()
    examples = facts_of(facts).examples
    while True:
        seen.add(run.path.resolve())
        cut, trained = Cut.read(run.path), run.dataset()
        whole = run.machine.get(WHOLE) if cut is None else cut.examples
        if (
            trained is not None
            and trained.digest == examples
            and dataset.digest not in (examples, whole)
            and (number := trained_on(dataset, field, part, trained))
        ):
            total = dataset.field(field).num_entries[part]
            warn_user(
                f"{run.path} was trained on {number:,} of the {total:,} entries of the {part} part of"
                f" {dataset.path}."
            )
        if (start := run.start) is None or start in seen:
            return
        try:
            run = RunDirectory.open(start)
            examples = WeightsFacts.of(Checkpoint.open(start / "model").facts).examples
        except (WidenetError, OSError):
            return


def check_keeps(run: RunDirectory, facts: Mapping[str, Any]) -> None:
    """Raise OptionError if a run cannot keep an evaluation; `facts` are those of its weights."""
    if "fingerprint" not in facts:
        raise OptionError("needs finished weights", place=run.path, option="keep")
    if cache.holds(run.path):
        raise OptionError("needs a run on the disk", place=run.path, option="keep")


def evaluated(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    dataset: Dataset,
    arguments: EvaluateArguments,
) -> Metrics:
    """Evaluate a network as `Model.evaluate` is asked to; `facts` are those of its weights."""
    part, output = arguments.part, arguments.output
    field = network.outputs[output_name(network, output)].spec.field
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
            beyond=arguments.beyond,
            groups=arguments.groups,
            inverse_propensities=_inverse_propensities(run, field, arguments),
        )
    if metrics.users is not None and arguments.interval is not None:
        metrics.intervals = metrics.users.intervals(arguments.interval)
    if arguments.exclude_seen:
        metrics.num_seen = known_before(dataset, field, part, known_parts(dataset, field, part))
    if arguments.baselines:
        metrics.baselines = _baselines(network, dataset, field, arguments)
    if arguments.keep:
        of = Evaluated(part, dataset.digest, field, bool(arguments.exclude_seen))

        def write() -> None:
            with writing(run.path):
                keep(run.path, of, str(facts["fingerprint"]), metrics)

        by_leader(network.exchange, write, "evaluation")
    return metrics


def _inverse_propensities(
    run: RunDirectory, field: str, arguments: EvaluateArguments
) -> NDArray[np.float64] | None:
    """The inverse propensity of each feature in the dataset of the training; None if not asked for."""
    if arguments.propensity is None:
        return None
    propensity, trained = Propensity.of(arguments.propensity), run.dataset()
    if trained is None:
        raise FitError(
            "needs the dataset of the training, which is gone", place=run.path, option="propensity"
        )
    return propensity.inverse(trained.counts(field), trained.num_examples)


def _baselines(
    network: Network, dataset: Dataset, field: str, arguments: EvaluateArguments
) -> dict[str, Metrics]:
    """Return the baselines' metrics, which the leader computes for all processes."""
    found: dict[str, Metrics] = {}

    def measure() -> None:
        with fixed_arithmetic():
            found.update(
                measured(
                    dataset,
                    field,
                    arguments.part,
                    check_ks(arguments.ks),
                    arguments.interval,
                    bool(arguments.exclude_seen),
                    arguments.say,
                )
            )

    by_leader(network.exchange, measure, "baselines")
    by_process: list[dict[str, Metrics]] = network.exchange.collect(found, "baselines")
    return next(filter(None, by_process))
