"""Evaluation of a trained model, with intervals, kept in its run directory if asked."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.measure import measured
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.overlap import known_before
from widenet.errors import FitError, OptionError
from widenet.evaluate import evaluate, output_name
from widenet.metrics.kept import Evaluated, keep
from widenet.metrics.propensity import Propensity
from widenet.metrics.ranking import Metrics, check_ks
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.rows import known_parts
from widenet.runs.arguments import EvaluateArguments
from widenet.stores import cache
from widenet.training.checkpoint import writing
from widenet.training.cut import Cut
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import facts_of


def check_options(run: RunDirectory, facts: Mapping[str, Any], arguments: EvaluateArguments) -> None:
    """Raise OptionError for options of an evaluation that do not go with the run.

    `facts` are those of the run's weights.
    """
    if arguments.keep:
        _check_keeps(run, facts)


def check_has_part(
    run: RunDirectory, network: Network, dataset: Dataset, part: Part, output: str | None
) -> None:
    """Raise FitError if a dataset lacks the part, but that of the training has it, or another one."""
    field = network.outputs[output_name(network, output)].spec.field
    known = dataset.field(field).parts
    trained = None if part in known else run.dataset()
    if trained is None:
        return
    place, parts = f"{dataset.path}: field {field!r} has no {part} part", trained.field(field).parts
    split = f"or set one aside with `{dataset.field(field).split_call(dataset.path, part)}`."
    if part in parts:
        raise FitError(f"{place}. Use {trained.path}, which {run.path} was trained on, {split}")
    other = next((each for each in parts if each not in ("train", *known)), None)
    if other is not None:
        setting = run.training.evaluation
        is_read = setting is not None and setting.part == other
        use = "was evaluated on in training" if is_read else "was not trained on"
        remedy = f"Use {trained.path} with `part={other!r}`, which {run.path} {use}, {split}"
        raise FitError(f"{place}. {remedy}")


def _check_keeps(run: RunDirectory, facts: Mapping[str, Any]) -> None:
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
        if network.exchange.leads:
            _warn_of_less_training(run, facts, dataset, part, field)
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
            f"{run.path}: `propensity` needs the dataset of its training, which is gone. Put it back to its"
            " place, or leave `propensity` out."
        )
    return propensity.inverse(trained.counts(field), trained.num_examples)


def _warn_of_less_training(
    run: RunDirectory, facts: Mapping[str, Any], dataset: Dataset, part: Part, field: str
) -> None:
    """Warn of baselines that learn from more than the network was trained on.

    Nobody can tell if the dataset of the training is gone, or if the run began with other weights.

    Args:
        run: The run.
        facts: The facts that were saved beside the weights.
        dataset: The dataset of the evaluation, from whose training part the baselines learn.
        part: The part of the evaluation.
        field: The field of the baselines.
    """
    trained = run.dataset() if run.start is None else None
    if trained is None or trained.digest != facts_of(facts).examples:
        return
    own, more = (each.field(field).num_entries.get("train", 0) for each in (trained, dataset))
    if own >= more:
        return
    cut = Cut.read(run.path)
    is_cut = cut is not None and cut.examples == dataset.digest
    again = "train again with `no_validation`" if is_cut else f"train again on {dataset.path}"
    has_part = part in trained.field(field).parts
    equal = f"evaluate with `data={str(trained.path)!r}`, or {again}" if has_part else again
    # Frames: here, `evaluated`, the method, its two wrappers, the caller.
    warnings.warn(
        f"{run.path} was trained on {own:,} entries, and the baselines on the {more:,} of {dataset.path}. To"
        f" compare them on equal terms, {equal}.",
        stacklevel=6,
    )


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
