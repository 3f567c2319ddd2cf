"""Chooses the neighbourhood term of a trained network, by a metric of its validation part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.together import Neighbours
from widenet.errors import FitError, OptionError
from widenet.evaluate import evaluate, output_name
from widenet.metrics.resampling import intervals
from widenet.model.neighbourhood import Neighbourhood
from widenet.model.network import Network
from widenet.parallel.threads import fixed_arithmetic
from widenet.randomness import stream
from widenet.run_arguments import CHOOSING_METRIC, CHOOSING_USERS
from widenet.runs.arguments import dataset_of, path_of
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.spec.layers import Neighbourhood as Term
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import MEANS, check_metric
from widenet.spec.usual import TERM
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts

_PART: Part = "validation"
_NEIGHBOURS, _POPULARITIES, _FLOORS = (25, 10, 3), (0.4, 0.2, 0.0), (0.01, 0.002)
_MOST_WEIGHT = 6.4
"""Above, softmax leaves the other units probabilities that are too small to tell apart."""
_LEVEL = 0.95


def words_of(term: Term | None) -> str:
    """Return the settings of a term in a line."""
    if term is None:
        return "no term"
    exponent = f"popularity {term.popularity:g}"
    return f"weight {term.weight:g}, floor {term.floor:g}, {term.neighbours} neighbours, {exponent}"


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

    def gain_over(self, other: "Choice") -> tuple[float, float, float]:
        """Return by how much the mean is larger than another's, and the bounds of the 95 % interval."""
        [lower], [upper] = intervals((self.values_E - other.values_E)[:, None], _LEVEL)
        return self.mean - other.mean, float(lower), float(upper)


@dataclass(frozen=True)
class Fitted:
    """The result of a search.

    Attributes:
        model: The model of the new run.
        before, best: The term of the run, and the best that was tried, for users who did not choose it.
    """

    model: Model
    before: Choice
    best: Choice

    @property
    def term(self) -> Term | None:
        """The term of the new run; None for none."""
        return _kept(self.before, self.best)


@typed
def fit_neighbourhood(
    run: str | Path,
    out: str | Path,
    data: Dataset | str | Path | None = None,
    users: int = CHOOSING_USERS,
    metric: str = CHOOSING_METRIC,
    output: str | None = None,
    overwrite: bool = False,
    report: Callable[[Choice], None] | None = None,
) -> Model:
    """Make a run of a trained one with the neighbourhood term that is best on its validation part.

    The weights stay. Tried are no term, that of the run, and terms of 25, 10 and 3 neighbours: for each
    number three exponents of popularity, and for the best of them two floors, and ever larger or smaller
    weights, up to 6.4, as long as they are better. Other users then judge the best term: if the 95 %
    interval of its gain over the run as it is reaches below zero, the new run has the term of the run, or
    none.

    Args:
        run: The trained run.
        out: The run directory to make.
        data: The dataset that the run was trained on. Default: where it was then.
        users: Number of users to choose by, drawn at random; as many others judge.
        metric: The metric to choose by, a mean over users.
        output: Name of the output; None if the network has only one.
        overwrite: Replace an earlier run at `out`.
        report: Called with each choice that is tried, first that without a term.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        FitError: The network can have no term, or the dataset is another or has no validation part.
        OptionError: `metric` or `users` is wrong, or `out` lies in the run.
    """
    return fitted_neighbourhood(run, out, data, users, metric, output, overwrite, report).model


def fitted_neighbourhood(
    run: str | Path,
    out: str | Path,
    data: Dataset | str | Path | None,
    users: int,
    metric: str,
    output: str | None,
    overwrite: bool,
    report: Callable[[Choice], None] | None,
) -> Fitted:
    """As `fit_neighbourhood`, with what the users say."""
    k = check_metric(metric)
    if metric.partition("@")[0] not in MEANS:
        raise OptionError(f'`metric` must be a mean over users; got "{metric}". Take "ndcg@{k}".')
    if users < 1:
        raise OptionError(f"`users` must be at least 1; got {users:,}.")
    source = RunDirectory.open(path_of("run", run))
    dataset = source.dataset() if data is None else dataset_of(data)
    if dataset is None:
        raise FitError(
            f"{source.path}: the dataset of its training is gone, or has other features now. Name it with"
            " `data`."
        )
    judged: list[Choice] = []
    facts: dict[str, bool] = {}

    def change(network: Network) -> None:
        name = output_name(network, output)
        own = network.outputs[name].spec.neighbourhood
        choosing, judging = _halves(dataset, network.outputs[name].spec.field, users)
        evaluation = source.training.evaluation
        excludes = evaluation is None or evaluation.seen == "exclude"
        trial = _Trial(network, name, dataset, metric, excludes)
        choices = []
        for choice in _choices(partial(trial.of, choosing), own):
            if choice in choices:
                continue
            choices.append(choice)
            if report is not None:
                report(choice)
        best = max(choices, key=_mean)
        judged.extend(trial.of(judging, term) for term in (own, best.term))
        trial.set(kept := _kept(*judged))
        if kept != own:
            facts["other_term"] = True

    check = partial(_check, output=output, dataset=dataset)
    model = saved_made_of(run, out, overwrite, check, change, facts)
    return Fitted(model, *judged)


def _kept(before: Choice, best: Choice) -> Term | None:
    """Return the best term if it gains by more than chance, else the one before."""
    return best.term if best.gain_over(before)[1] > 0 else before.term


def _check(model: Model, output: str | None, dataset: Dataset) -> None:
    """Raise FitError or OptionError if there can be no term, or no choice of one."""
    facts, path = WeightsFacts.of(model.facts), model.run.path
    if facts.in_8_bits or facts.nonzeros is not None:
        raise OptionError(
            f"{path} is {facts.form}. Choose the term for {facts.origin}, then make the result smaller."
        )
    name = output_name(model.network, output)
    wanted = model.network.outputs[name].spec.field
    model.run.check_dataset(dataset)
    if facts.examples not in (None, dataset.digest):
        raise FitError(
            f"{dataset.path} has other examples than those of {path}. Name the dataset of its training."
        )
    known = dataset.field(wanted)
    if known.kind == "dense" or wanted not in {layer.field for layer in model.network.spec.inputs}:
        raise FitError(
            f'{path}: output "{name}" can have no neighbourhood term, which needs an input of the field that'
            f' the output predicts, "{wanted}", sparse or a sequence. Use the run as it is.'
        )
    if known.num_entries.get(_PART, 0) == 0 or len(_able(dataset, wanted)) < 2:
        raise FitError(
            f'{path}: its dataset, {dataset.path}, has no validation part of "{wanted}" with two users. Set'
            " one aside with `widenet data split`, and train again."
        )


def _able(dataset: Dataset, wanted: str) -> np.ndarray:
    """Return the rows of the users with something to find, int64, ascending."""
    everyone = slice(0, dataset.num_examples)
    return np.flatnonzero(dataset.entry_counts(wanted, everyone, _PART))


def _halves(dataset: Dataset, wanted: str, users: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of so many users to choose by, and of others to judge, drawn at random, ascending."""
    drawn = stream(0, "users to choose by").permutation(_able(dataset, wanted))
    number = min(users, len(drawn) // 2)
    return np.sort(drawn[:number]), np.sort(drawn[number : 2 * number])


def set_term(network: Network, name: str, term: Term | None) -> None:
    """Give an output of a trained network another term, whose neighbours are unknown, or none."""
    output = network.outputs[name]
    own: OutputLayer = output.spec.model_copy(update={"neighbourhood": term})
    layers = tuple(own if layer is output.spec else layer for layer in network.spec.layers)
    spec = network.spec.model_copy(update={"layers": layers})
    network.layout, output.spec = replace(network.layout, network=spec), own
    known = output.weight.shards, network.exchange, network.device
    output.neighbourhood = None if term is None else Neighbourhood(own, *known)


@dataclass
class _Trial:
    """Measures terms of a network's output, and counts once for terms of as many neighbours."""

    network: Network
    name: str
    dataset: Dataset
    metric: str
    excludes_seen: bool
    found: dict[int, dict[int, Neighbours]] = field(default_factory=dict)

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each feature occurs, int64."""
        return self.dataset.counts(self.network.outputs[self.name].spec.field)

    def set(self, term: Term | None) -> None:
        """Give the output a term, or none."""
        set_term(self.network, self.name, term)
        own, exchange = self.network.outputs[self.name].neighbourhood, self.network.exchange
        if own is None:
            return
        if own.spec.neighbours not in self.found:
            each = exchange.each(lambda shard: (shard, own.found(self.dataset, shard)))
            self.found[own.spec.neighbours] = dict(each)
        found = self.found[own.spec.neighbours]
        exchange.each(lambda shard: own.take(shard, found[shard]))

    def of(self, rows: np.ndarray, term: Term | None) -> Choice:
        """Measure some users with a term, or without one."""
        self.set(term)
        with fixed_arithmetic():
            result = evaluate(
                self.network,
                self.dataset,
                _PART,
                [check_metric(self.metric)],
                self.name,
                self.excludes_seen,
                keep_users=True,
                rows=rows,
                counts_L=self.counts,
            )
        assert result.users is not None
        column = result.users.names.index(self.metric)
        return Choice(term, result[self.metric], result.users.values[:, column])


_Measure = Callable[[Term | None], Choice]


def _choices(measure: _Measure, own: Term | None) -> Iterator[Choice]:
    """Yield no term, that of the run, if any, and other terms."""
    yield measure(None)
    if own is not None:
        yield measure(own)
    for number in _NEIGHBOURS:
        yield from _of_neighbours(measure, number)


def _of_neighbours(measure: _Measure, number: int) -> Iterator[Choice]:
    """Yield terms of so many neighbours: all exponents, then the best one's with other floors and weights."""
    usual = Term(**TERM, neighbours=number)
    by_exponent = []
    for popularity in _POPULARITIES:
        by_exponent.append(measure(usual.model_copy(update={"popularity": popularity})))
        yield by_exponent[-1]
    best = max(by_exponent, key=_mean)
    for floor in _FLOORS:
        if floor != usual.floor:
            best = measure(_other(best, floor=floor))
            yield best
        for choice in _climbed(measure, best):
            yield choice
            best = max(best, choice, key=_mean)


def _climbed(measure: _Measure, start: Choice) -> Iterator[Choice]:
    """Yield the term with ever larger weights as long as they are better; else with ever smaller ones."""
    for factor in (2.0, 0.5):
        best = start
        while best.term is not None and (weight := factor * best.term.weight) <= _MOST_WEIGHT:
            choice = measure(_other(best, weight=weight))
            yield choice
            if choice.mean <= best.mean:
                break
            best = choice
        if best is not start:
            return


def _other(choice: Choice, **settings: float) -> Term:
    assert choice.term is not None
    return choice.term.model_copy(update=settings)


def _mean(choice: Choice) -> float:
    return choice.mean
