"""Fits the neighbourhood terms that ask for it when a training has ended."""

import time
from collections.abc import Callable
from typing import Any

from widenet.data.dataset import Dataset
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.runs.arguments import CHOOSING_USERS
from widenet.runs.term_search import PART, Choice, Found, able_rows, search, words_of
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import MEANS
from widenet.training.loop import Evaluate
from widenet.training.run_directory import RunDirectory, saved_fit
from widenet.training.run_log import FITS
from widenet.training.state import Report

_UNORDERED = "It ignores the order of the sequences: a dataset without `sequence=True` may give better lists."


def fit_terms(
    run: RunDirectory,
    network: Network,
    dataset: Dataset,
    evaluate: Evaluate | None,
    report: Report,
    interrupted: Callable[[], bool],
) -> dict[str, Any]:
    """Fit the terms of a trained network; return facts for its weights.

    They are the network's document and, if a term is another one now, its metrics. There are none if no term
    can be fitted. Every process of a group must call this.

    Raises:
        KeyboardInterrupt: `interrupted` became true in a process. A resumed training fits the terms again.
    """
    wanted = [
        layer for layer in run.network.outputs if _wants(layer) and _hindrance(run, dataset, layer) is None
    ]
    if not wanted or evaluate is None:
        return {}

    evaluation = run.training.evaluation
    assert evaluation is not None

    choices: list[Choice] = []

    def tried(choice: Choice) -> None:
        choices.append(choice)
        best = max(choices, key=lambda each: each.mean)
        report.tried(f"{len(choices)} tried, the best so far: {evaluation.metric} {best}")

    def check_interrupted() -> None:
        if any(network.exchange.collect(interrupted(), "interruption")):
            raise KeyboardInterrupt

    has_changed, fits = False, []
    for layer in wanted:
        output = f'"{layer.name}"'
        choices.clear()
        started = time.monotonic()
        report.say(f"Fitting the neighbourhood term of {output} by {evaluation.metric}.")
        excludes = evaluation.seen == "exclude"
        asked = evaluation.metric, excludes, CHOOSING_USERS, tried, check_interrupted
        found = search(network, layer.name, dataset, *asked)
        has_changed = has_changed or found.term != found.before.term
        report.say(_said(found, evaluation.metric, output, dataset.manifest.words.examples))
        facts_of_fit = _facts(found, layer.name, evaluation.metric, len(choices))
        fits.append({**facts_of_fit, "seconds": round(time.monotonic() - started, 3)})
    by_leader(network.exchange, lambda: _log(run, fits), "log")
    facts = saved_fit(run, network)
    if not has_changed:
        return facts
    check_interrupted()
    return {**facts, "metrics": evaluate(network)}


def unfitted(run: RunDirectory, dataset: Dataset) -> list[str]:
    """Return a sentence for each term that a training cannot fit, although its document asks for it."""
    return [
        f'The neighbourhood term of "{layer.name}" stays as the document has it: {hindrance}.'
        for layer in run.network.outputs
        if _wants(layer) and (hindrance := _hindrance(run, dataset, layer)) is not None
    ]


def _wants(layer: OutputLayer) -> bool:
    return layer.neighbourhood is not None and layer.neighbourhood.fit


def _hindrance(run: RunDirectory, dataset: Dataset, layer: OutputLayer) -> str | None:
    """Return why a training cannot fit an output's term; None if it can."""
    training = run.training
    if run.start is not None:
        return "this training goes on from another, and its interactions alone are too few to count by"
    if training.evaluation is None or training.evaluation.part != PART:
        return f"training.json has no evaluation on a {PART} part to fit it by"
    if training.evaluation.metric.partition("@")[0] not in MEANS:
        return f"{training.evaluation.metric} is no mean over {dataset.manifest.words.examples}"
    if PART not in dataset.field(layer.field).parts or len(able_rows(dataset, layer.field)) < 2:
        return f'the {PART} part of "{layer.field}" has fewer than two {dataset.manifest.words.examples}'
    return None


def _log(run: RunDirectory, fits: list[dict[str, Any]]) -> None:
    """Add the fits to the log, unless somebody has removed it."""
    if run.records():
        run.log_more({FITS: fits})


def _facts(found: Found, output: str, metric: str, num_tried: int) -> dict[str, Any]:
    """Return what the log says of a fit; `metric` is the mean over the users who did not choose the term."""
    return {
        "output": output,
        "num_tried": num_tried,
        "metric": metric,
        "num_users": len(found.best.values_E),
        "before": found.before.mean,
        "best": found.best.mean,
        "best_term": words_of(found.best.term),
        "term": words_of(found.term),
    }


def _said(found: Found, metric: str, output: str, examples: str) -> str:
    """Say what was found, and what the users say of it who did not choose it."""
    if found.term == found.before.term:
        return f"No other term of {output} is surely better by 1 %: {words_of(found.term)}."
    judges = f"{len(found.best.values_E):,} {examples} who did not choose it"
    means = f"{found.best.mean:.4f}, and {found.before.mean:.4f} with the term before"
    said = f"The term of {output}: {words_of(found.term)}. For {judges}, {metric} is {means}."
    in_order = [choice.term and choice.term.in_order for choice in (found.before, found.best)]
    return f"{said} {_UNORDERED}" if in_order == [True, False] else said
