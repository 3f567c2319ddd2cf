"""Chooses the neighbourhood term of a trained network, by a metric of its validation part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.together import Neighbours
from widenet.errors import FitError, OptionError
from widenet.evaluate import output_name
from widenet.metrics.ranking import RankingMetrics
from widenet.metrics.resampling import intervals
from widenet.model.neighbourhood import Neighbourhood
from widenet.model.network import Network
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.rows import Histories, known_parts, rows_a_block
from widenet.predict.top_k import Filter
from widenet.randomness import stream
from widenet.runs.arguments import path_of
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.spec.layers import Neighbourhood as Term
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import MEANS, check_metric
from widenet.spec.usual import TERM
from widenet.training.run_directory import RunDirectory

_PART: Part = "validation"
_NEIGHBOURS, _POPULARITIES, _FLOORS = (25, 10, 3), (0.4, 0.2, 0.0), (0.01, 0.002)
_LEVEL = 0.95


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

    def gain_over(self, other: "Choice") -> tuple[float, float, float]:
        """Return by how much the mean is larger than another's, and the bounds of the 95 % interval."""
        [lower], [upper] = intervals((self.values_E - other.values_E)[:, None], _LEVEL)
        return self.mean - other.mean, float(lower), float(upper)


@typed
def fit_neighbourhood(
    run: str | Path,
    out: str | Path,
    users: int = 4096,
    metric: str = "ndcg@20",
    output: str | None = None,
    overwrite: bool = False,
    report: Callable[[Choice], None] | None = None,
) -> Model:
    """Make a run of a trained one with the neighbourhood term that is best on its validation part.

    The weights stay. Tried are no term, that of the run, and terms of 25, 10 and 3 neighbours: for each
    number three exponents of popularity, and for the best of them two floors, and ever larger or smaller
    weights as long as they are better.

    Args:
        run: The trained run. The dataset of its training must be at its place, and have a validation part.
        out: The run directory to make.
        users: Number of users to choose by, drawn at random.
        metric: The metric to choose by, a mean over users.
        output: Name of the output; None if the network has only one.
        overwrite: Replace an earlier run at `out`.
        report: Called with each choice that was tried, first that without a term.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        FitError: The network can have no term, or there is no validation part.
        OptionError: `metric` or `users` is wrong, or `out` lies in the run.
    """
    k = check_metric(metric)
    if metric.partition("@")[0] not in MEANS:
        raise OptionError(f'`metric` must be a mean over users; got "{metric}". Take "ndcg@{k}".')
    if users < 1:
        raise OptionError(f"`users` must be at least 1; got {users:,}.")
    dataset = _dataset(RunDirectory.open(path_of("run", run)))

    def check(model: Model) -> None:
        _check(model, output_name(model.network, output), dataset)

    def change(network: Network) -> None:
        name = output_name(network, output)
        own = network.outputs[name].spec
        trial = _Trial(network, name, dataset, _drawn(dataset, own.field, users), metric)
        choices = []
        for choice in _choices(trial, own.neighbourhood):
            choices.append(choice)
            if report is not None:
                report(choice)
        best = max(choices, key=_mean)
        trial.set(best.term)

    return saved_made_of(run, out, overwrite, check, change, {})


def _dataset(run: RunDirectory) -> Dataset:
    """Return the dataset of a run's training; raises FitError."""
    dataset = run.dataset()
    if dataset is None:
        raise FitError(f"{run.path}: the dataset of its training is gone. Put it back to its place.")
    return dataset


def _check(model: Model, name: str, dataset: Dataset) -> None:
    """Raise FitError if there can be no term, or no choice of one."""
    wanted = model.network.outputs[name].spec.field
    known = dataset.field(wanted)
    if known.kind == "dense" or wanted not in {layer.field for layer in model.network.spec.inputs}:
        raise FitError(
            f'{model.run.path}: output "{name}" can have no neighbourhood term, which needs an input of the'
            f' field that the output predicts, "{wanted}", sparse or a sequence. Use the run as it is.'
        )
    if not known.num_entries.get(_PART):
        raise FitError(
            f'{model.run.path}: its dataset, {dataset.path}, has no validation part of "{wanted}".'
            " Set one aside with `validation=0.1`, and train again."
        )


def _drawn(dataset: Dataset, wanted: str, users: int) -> np.ndarray:
    """Return rows of users with something to find, drawn at random, ascending."""
    able = np.flatnonzero(dataset.entry_counts(wanted, slice(0, dataset.num_examples), _PART))
    return np.sort(stream(0, "users to choose by").permutation(able)[:users])


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
    """Measures terms of an output for some users; counts once for terms of as many neighbours."""

    network: Network
    name: str
    dataset: Dataset
    rows: np.ndarray
    metric: str
    counted: int = 0
    found: dict[int, Neighbours] = field(default_factory=dict)

    def set(self, term: Term | None) -> None:
        """Give the output a term, or none."""
        set_term(self.network, self.name, term)
        if (own := self.network.outputs[self.name].neighbourhood) is None:
            return
        if self.counted != own.spec.neighbours:
            self.counted = own.spec.neighbours
            self.found = dict(
                self.network.exchange.each(lambda shard: (shard, own.found(self.dataset, shard)))
            )
        self.network.exchange.each(lambda shard: own.take(shard, self.found[shard]))

    def of(self, term: Term | None) -> Choice:
        """Measure the users with a term, or without one."""
        self.set(term)
        k, output = check_metric(self.metric), self.network.outputs[self.name]
        wanted = output.spec.field
        metrics = RankingMetrics([k], self.dataset.counts(wanted))
        histories = Histories(self.network, self.dataset, partial(known_parts, self.dataset, part=_PART))
        allowed = Filter().within(self.dataset.field(wanted).width, output)
        step = rows_a_block(k)
        for start in range(0, len(self.rows), step):
            rows = self.rows[start : start + step]
            with fixed_arithmetic():
                _, units_EK = histories.best(self.name, rows, k, allowed=allowed, scores=False)
            truth = self.dataset.sparse(wanted, rows, _PART)
            truth = truth.distinct() if self.dataset.field(wanted).kind == "sequence" else truth
            metrics.add(
                units_EK.cpu().numpy(), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64), rows
            )
        result = metrics.result()
        assert result.users is not None
        values_E = result.users.values[:, result.users.names.index(self.metric)]
        return Choice(term, result[self.metric], values_E)


def _choices(trial: _Trial, own: Term | None) -> Iterator[Choice]:
    """Yield no term, that of the run, if any, and other terms."""
    yield trial.of(None)
    if own is not None:
        yield trial.of(own)
    for number in _NEIGHBOURS:
        yield from _of_neighbours(trial, number)


def _of_neighbours(trial: _Trial, number: int) -> Iterator[Choice]:
    """Yield terms of so many neighbours: all exponents, then the best one's with other floors and weights."""
    usual = Term(**TERM, neighbours=number)
    by_exponent = []
    for popularity in _POPULARITIES:
        by_exponent.append(trial.of(usual.model_copy(update={"popularity": popularity})))
        yield by_exponent[-1]
    best = max(by_exponent, key=_mean)
    for floor in _FLOORS:
        if floor != usual.floor:
            best = trial.of(_other(best, floor=floor))
            yield best
        for choice in _climbed(trial, best):
            yield choice
            best = max(best, choice, key=_mean)


def _climbed(trial: _Trial, start: Choice) -> Iterator[Choice]:
    """Yield the term with ever larger weights as long as they are better; else with ever smaller ones."""
    for factor in (2.0, 0.5):
        best = start
        while best.term is not None:
            choice = trial.of(_other(best, weight=factor * best.term.weight))
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
