"""Fits neighbourhood terms when a training ends: the term that is best on the validation part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from widenet.baselines.evaluate import evaluate
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.together import Neighbours
from widenet.metrics.resampling import intervals
from widenet.model.network import Network
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.terms import counted, take_neighbours
from widenet.randomness import stream
from widenet.spec.layers import Neighbourhood as Term
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import MEANS, check_metric
from widenet.spec.usual import TERM, TERM_IN_ORDER
from widenet.training.loop import Evaluate
from widenet.training.run_directory import RunDirectory, saved_fit
from widenet.training.state import Report

TRIED = (25, 10, 3)
"""The numbers of neighbours that are tried."""
PART: Part = "validation"
"""The part by whose examples a term is chosen."""
_POPULARITIES, _FLOORS = (0.4, 0.2, 0.0), (0.01, 0.002)
_MOST_WEIGHT = 6.4
"""Above, softmax leaves the other units probabilities that are too small to tell apart."""
_ORDERS = {"ignore": "", "use": ", in order", "forward": ", in order, forward"}
MOST_USERS = 4096
"""Users to choose by at most; as many others judge."""
_SCREENING, _FINALISTS = 1024, 4
"""Users who try all terms, and the best terms of theirs that all users choose among."""
_LEVEL = 0.95
_LEAST_GAIN = 0.01
"""What a term must surely gain, as a part of the metric: a random validation part flatters terms."""


def words_of(term: Term | None) -> str:
    """Return the settings of a term in a line."""
    if term is None:
        return "no term"
    settings = f"{term.neighbours} neighbours, popularity {term.popularity:g}"
    return f"weight {term.weight:g}, floor {term.floor:g}, {settings}{_ORDERS[term.order]}"


@dataclass(frozen=True)
class Choice:
    """A term that was tried, or none, and what a metric says of it.

    Attributes:
        term: The term; None for the network without one.
        mean: The mean of the metric over the users.
        values_E: The metric of each user, float32.
    """

    term: Term | None
    mean: float
    values_E: np.ndarray = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.mean:.4f}  {words_of(self.term)}"


def search(
    network: Network,
    name: str,
    dataset: Dataset,
    metric: str,
    excludes_seen: bool,
    users: int,
    report: Callable[[Choice], None],
    check_interrupted: Callable[[], None],
) -> tuple[Term | None, Choice, Choice]:
    """Give an output the neighbourhood term that is best on the validation part.

    Every process of a group must call this. All of them find the same.

    Args:
        network: A trained network, whose weights stay.
        name: Name of the output.
        dataset: The dataset of its training.
        metric: A mean over users.
        excludes_seen: Whether lists leave out what a user has already.
        users: Number of users to choose by; as many others judge. Of twice `_SCREENING` or more, some try all
            terms, and all choose among the best.
        report: Called with each choice that is tried, first that without a term.
        check_interrupted: Called before each evaluation, in every process; may raise KeyboardInterrupt.

    Returns:
        The best term if it surely gains a hundredth, else the one before; None for none. Then, for users who
        did not choose it, the term before and the best that was tried.
    """
    spec = network.outputs[name].spec
    own = None if spec.neighbourhood is None else spec.neighbourhood.model_copy(update={"fit": False})
    choosing, judging = _halves(dataset, spec.field, users)
    some = choosing[:: max(1, len(choosing) // _SCREENING)]
    most = max(*TRIED, 0 if own is None else own.neighbours)
    # What occurs together is counted once for each order.
    known: dict[str, dict[int, Neighbours]] = {}
    occurrences, tried = dataset.counts(spec.field), dict[Term | None, Choice]()

    def give(term: Term | None) -> None:
        set_terms(network, name, neighbourhood=term)
        output, each = network.outputs[name], network.exchange.each
        if term is None:
            return
        if term.order not in known:
            found = dict(each(lambda shard: (shard, counted(output, dataset, shard, most))))
            counts = next(iter(found.values())).counts  # equal in all of them: kept once
            known[term.order] = {shard: replace(near, counts=counts) for shard, near in found.items()}
        nearest = known[term.order]
        each(lambda shard: take_neighbours(output, shard, nearest[shard].nearest(term.neighbours)))

    def choice_of(rows: np.ndarray, term: Term | None) -> Choice:
        check_interrupted()
        give(term)
        asked = [check_metric(metric)], name, excludes_seen
        with fixed_arithmetic():
            result = evaluate(
                network, dataset, PART, *asked, keep_users=True, rows=rows, counts_L=occurrences
            )
        assert result.users is not None
        column = result.users.names.index(metric)
        return Choice(term, result[metric], result.users.values[:, column])

    def measure(term: Term | None) -> Choice:
        if term not in tried:
            tried[term] = choice_of(some, term)
            report(tried[term])
        return tried[term]

    _try_all(measure, own, dataset.field(spec.field).kind == "sequence")
    finalists = sorted(tried.values(), key=_MEAN, reverse=True)[:_FINALISTS]
    if len(some) < len(choosing):
        finalists = [choice_of(choosing, choice.term) for choice in finalists]
    best = max(finalists, key=_MEAN)
    before, best = choice_of(judging, own), choice_of(judging, best.term)
    [gain], _ = intervals((best.values_E - before.values_E)[:, None], _LEVEL)
    term = best.term if gain > _LEAST_GAIN * before.mean else before.term
    give(term)
    return term, before, best


def able_rows(dataset: Dataset, wanted: str) -> np.ndarray:
    """Return the rows of the users with something to find, int64, ascending."""
    everyone = slice(0, dataset.num_examples)
    return np.flatnonzero(dataset.entry_counts(wanted, everyone, PART))


def _halves(dataset: Dataset, wanted: str, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of so many users to choose by, and of others to judge, drawn at random, ascending."""
    drawn = stream(0, "users to choose by").permutation(able_rows(dataset, wanted))
    number = min(users, len(drawn) // 2)
    return np.sort(drawn[:number]), np.sort(drawn[number : 2 * number])


def set_terms(network: Network, name: str, **terms: Any) -> None:
    """Give an output of a trained network other terms; the neighbours of a new one are unknown.

    Args:
        network: The network.
        name: Name of the output.
        terms: New values of the layer's `neighbourhood` or `repeats`.
    """
    output = network.outputs[name]
    own: OutputLayer = output.spec.model_copy(update=terms)
    layers = tuple(own if layer is output.spec else layer for layer in network.spec.layers)
    spec = network.spec.model_copy(update={"layers": layers})
    network.layout, output.spec = replace(network.layout, network=spec), own
    if "neighbourhood" in terms:
        output.empty_lists()


_Measure = Callable[[Term | None], Choice]
_MEAN = attrgetter("mean")


def _try_all(measure: _Measure, own: Term | None, is_sequence: bool) -> None:
    """Measure no term, that of the run, if any, and others of some numbers of neighbours.

    For each number: all exponents, then the best with other floors and weights.
    """
    measure(None)
    if own is not None:
        measure(own)
    in_order: list[Mapping[str, Any]] = [TERM_IN_ORDER, {**TERM_IN_ORDER, "order": "forward"}]
    for start in [TERM, *in_order] if is_sequence else [TERM]:
        for number in TRIED:
            usual = Term.model_validate({**start, "neighbours": number})
            exponents = (usual.model_copy(update={"popularity": each}) for each in _POPULARITIES)
            best = max(map(measure, exponents), key=_MEAN)
            for floor in _FLOORS:
                best = max(best, _climbed(measure, measure(_other(best, floor=floor))), key=_MEAN)


def _climbed(measure: _Measure, start: Choice) -> Choice:
    """Measure ever larger weights as long as they are better, else ever smaller ones; return the best."""
    for factor in (2.0, 0.5):
        best = start
        while best.term is not None and (weight := factor * best.term.weight) <= _MOST_WEIGHT:
            choice = measure(_other(best, weight=weight))
            if choice.mean <= best.mean:
                break
            best = choice
        if best is not start:
            return best
    return start


def _other(choice: Choice, **settings: float) -> Term:
    assert choice.term is not None
    return choice.term.model_copy(update=settings)


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
    evaluation, outputs = run.training.evaluation, run.network.outputs
    asked = [layer for layer in outputs if layer.neighbourhood is not None and layer.neighbourhood.fit]
    wanted = [layer for layer in asked if _can_fit(run, dataset, layer)]
    for layer in asked:
        if layer not in wanted:
            report.say(f'The neighbourhood term of "{layer.name}" cannot be fitted, and stays.')
    if not wanted or evaluate is None or evaluation is None:
        return {}
    choices: list[Choice] = []

    def tried(choice: Choice) -> None:
        choices.append(choice)
        best = max(choices, key=_MEAN)
        report.tried(f"{len(choices)} tried, the best so far: {evaluation.metric} {best}")

    def check_interrupted() -> None:
        if any(network.exchange.collect(interrupted(), "interruption")):
            raise KeyboardInterrupt

    has_changed, excludes = False, evaluation.seen == "exclude"
    for layer in wanted:
        choices.clear()
        report.say(f'Fitting the neighbourhood term of "{layer.name}" by {evaluation.metric}.')
        limits = evaluation.metric, excludes, MOST_USERS
        term, before, best = search(network, layer.name, dataset, *limits, tried, check_interrupted)
        is_new = term != before.term
        has_changed = has_changed or is_new
        means = f"{evaluation.metric} {best.mean:.4f}, the one before {before.mean:.4f}"
        report.say(
            f'The term of "{layer.name}" {"is now" if is_new else "stays"} {words_of(term)}.'
            f" For {len(best.values_E):,} others, the best that was tried has {means}."
        )
    facts = saved_fit(run, network)
    if not has_changed:
        return facts
    check_interrupted()
    return {**facts, "metrics": evaluate(network)}


def _can_fit(run: RunDirectory, dataset: Dataset, layer: OutputLayer) -> bool:
    """Whether a training can fit an output's term: by a mean over two examples of a validation part or more.

    One that goes on from another run has too few interactions to count by.
    """
    evaluation = run.training.evaluation
    return (
        run.start is None
        and evaluation is not None
        and evaluation.part == PART
        and evaluation.metric.partition("@")[0] in MEANS
        and PART in dataset.field(layer.field).parts
        and len(able_rows(dataset, layer.field)) >= 2
    )
