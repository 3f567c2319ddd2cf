"""Runs that are made of trained ones, in 8 bits or with another neighbourhood term, and the search for one.

The search finds the term that is best on a validation part, after a training or later.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from widenet.arguments import check_local, typed
from widenet.baselines.evaluate import evaluate, output_name
from widenet.data.dataset import Dataset
from widenet.data.known import RUN_FIELDS
from widenet.data.manifest import Part
from widenet.data.together import Neighbours
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.metrics.resampling import intervals
from widenet.model.network import Network
from widenet.model.weight import QuantizedPart, fits_in_8_bits
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.group import by_leader
from widenet.predict.terms import counted, take_neighbours
from widenet.randomness import stream
from widenet.runs.cutting import Cut
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.model import Model
from widenet.runs.run_arguments import CHOOSING_METRIC, CHOOSING_USERS
from widenet.spec.layers import Neighbourhood as Term
from widenet.spec.layers import OutputLayer
from widenet.spec.metric_names import MEANS, check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.usual import TERM, TERM_IN_ORDER
from widenet.stores.uri import is_uri
from widenet.training.loop import Evaluate
from widenet.training.run_directory import RunDirectory, WeightsFacts, saved_fit, with_network_of
from widenet.training.run_path import DATA, FITTED, START, WHOLE, begun, replaced, write_whole
from widenet.training.run_path import check as check_path
from widenet.training.state import Report

_COPIED = (
    "network.json",
    FITTED,
    "training.json",
    RUN_FIELDS,
    "vocabulary",
    "attributes",
    "log.jsonl",
    START,
)


def saved_made_of(
    run: str | Path,
    out: str | Path,
    overwrite: bool,
    check: Callable[[Model], None],
    change: Callable[[Network], None],
    facts: Mapping[str, Any],
) -> Model:
    """Make a run of a trained one.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.
        check: Raises OptionError or FitError if it cannot be made of a model.
        change: Changes the network, perhaps its document too.
        facts: What to add to the facts beside the weights, read after `change`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError, FitError: `check` raises it, or `out` lies in the run.
    """
    check_local("out", out)
    path = path_of("out", out)
    source = RunDirectory.open(path_of("run", run))
    if not (source.path / "model").is_dir():
        raise CheckpointError("has not ended", place=source.path)
    if overwrite and any((each / DATA).is_dir() for each in (path, replaced(path))):
        raise CheckpointError("holds a dataset, which would go with it", place=path)
    if path.resolve().is_relative_to(source.path.resolve()):
        raise OptionError(
            f"must not lie in {source.path}, which it is made of", option="out", value=str(path)
        )
    check_path(path, [source.path], overwrite)
    model = Model.load(source.path, device="cpu")
    check(model)
    exchange, network = model.network.exchange, model.network
    own = {name: fact for name, fact in model.facts.items() if name not in ("documents", "fingerprint")}
    own["made_of"] = str(run) if is_uri(run) else str(source.path.resolve())
    with ExitStack() as stack:
        copied = begun(path, partial(_copy, source), [source.path], overwrite, is_whole=True)
        by_leader(exchange, lambda: stack.enter_context(copied), "run directory")
        before = network.spec
        change(network)
        if network.spec is not before:
            own.pop("network", None)
            by_leader(exchange, lambda: _put_network(path, network.spec), "run directory")
        saved = RunDirectory.open(path).save_model("model", network, {**own, **facts})
    return Model(with_network_of(RunDirectory.open(path), saved), network, saved.facts)


def _put_network(run: Path, spec: NetworkSpec) -> None:
    """Give a run another network document, whose terms are not fitted again; raises CheckpointError."""
    write_whole(run / "network.json", spec.to_json().encode())
    (run / FITTED).unlink(missing_ok=True)


def num_bytes(run: str | Path) -> int:
    """Return the bytes of a run's weights on disk."""
    return sum(file["bytes"] for file in RunDirectory.open(path_of("run", run)).model().files.values())


def _copy(run: RunDirectory, new: Path) -> None:
    """Copy what a run has beside its weights to a new folder; raises CheckpointError, OSError."""
    for name in _COPIED:
        if (run.path / name).is_dir():
            shutil.copytree(run.path / name, new / name)
        elif (run.path / name).exists():
            shutil.copyfile(run.path / name, new / name)
    own_data = {"data": str((run.path / DATA).resolve())} if (run.path / DATA).is_dir() else {}
    if (cut := Cut.read(run.path)) is not None:
        own_data[WHOLE] = cut.examples
    RunDirectory.open(new).note_machine({**run.machine, **own_data})


@typed
def quantize(run: str | Path, out: str | Path, overwrite: bool = False) -> Model:
    """Make a run in 8 bits of a trained one.

    The vectors of sparse inputs and outputs become whole numbers, with a scale for each. All else stays.
    Scores then come from exact products of whole numbers, so that neither batches nor threads nor processes
    change them.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is in 8 bits already, or has no weights that could be; or `out` lies in it.
    """
    return saved_made_of(run, out, overwrite, _check_weights, put_in_8_bits, {"in_8_bits": True})


def put_in_8_bits(network: Network) -> None:
    """Put the matrices of sparse inputs and outputs into 8 bits, one at a time."""
    for name, weight in network.wide.items():
        if fits_in_8_bits(network.layout.weights[name]):
            parts = weight.parts
            made = network.exchange.each(lambda shard: QuantizedPart.of(parts[shard]))  # noqa: B023 at once
            weight.parts = dict(zip(network.exchange.shards, made, strict=True))


def _check_weights(model: Model) -> None:
    """Raise OptionError if a run cannot be put into 8 bits."""
    if WeightsFacts.of(model.facts).in_8_bits:
        raise OptionError("is in 8 bits already", place=model.run.path)
    if not any(map(fits_in_8_bits, model.network.layout.weights.values())):
        raise OptionError(
            "has no vectors of sparse inputs, or of outputs after hidden layers, to put into 8 bits",
            place=model.run.path,
        )


TRIED = (25, 10, 3)
"""The numbers of neighbours that are tried."""
PART: Part = "validation"
"""The part by whose examples a term is chosen."""
_POPULARITIES, _FLOORS = (0.4, 0.2, 0.0), (0.01, 0.002)
_MOST_WEIGHT = 6.4
"""Above, softmax leaves the other units probabilities that are too small to tell apart."""
_ORDERS = {"ignore": "", "use": ", in order", "forward": ", in order, forward"}
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

    def gain_over(self, other: "Choice") -> tuple[float, float, float]:
        """Return by how much the mean is larger than another's, and the bounds of the 95 % interval."""
        [lower], [upper] = intervals((self.values_E - other.values_E)[:, None], _LEVEL)
        return self.mean - other.mean, float(lower), float(upper)


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        before, best: The term of the output before, and the best that was tried, for users who did not choose
            it.
    """

    before: Choice
    best: Choice

    @cached_property
    def term(self) -> Term | None:
        """The best term if it surely gains a hundredth, else the one before; None for none."""
        surely = self.best.gain_over(self.before)[1]
        return self.best.term if surely > _LEAST_GAIN * self.before.mean else self.before.term


def search(
    network: Network,
    name: str,
    dataset: Dataset,
    metric: str,
    excludes_seen: bool,
    users: int,
    report: Callable[[Choice], None] | None = None,
    check_interrupted: Callable[[], None] = lambda: None,
) -> Found:
    """Give an output the neighbourhood term that is best on the validation part, and return what was found.

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
            if report is not None:
                report(tried[term])
        return tried[term]

    _try_all(measure, own, dataset.field(spec.field).kind == "sequence")
    finalists = sorted(tried.values(), key=_MEAN, reverse=True)[:_FINALISTS]
    if len(some) < len(choosing):
        finalists = [choice_of(choosing, choice.term) for choice in finalists]
    best = max(finalists, key=_MEAN)
    found = Found(choice_of(judging, own), choice_of(judging, best.term))
    give(found.term)
    return found


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
        limits = evaluation.metric, excludes, CHOOSING_USERS
        found = search(network, layer.name, dataset, *limits, tried, check_interrupted)
        has_changed = has_changed or found.term != found.before.term
        report.say(
            f'The term of "{layer.name}": {words_of(found.term)}. For {len(found.best.values_E):,} others the'
            f" best has {evaluation.metric} {found.best.mean:.4f}, the one before {found.before.mean:.4f}."
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
    weights, up to 6.4, as long as they are better. Along a sequence, this is done for all settings of
    `order`. Other users then judge the best term: if the 95 % interval of its gain over the run as it is
    reaches below 1 % of the metric, the new run has the term of the run, or none.

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
    return fitted_neighbourhood(run, out, data, users, metric, output, overwrite, report)[0]


def fitted_neighbourhood(
    run: str | Path,
    out: str | Path,
    data: Dataset | str | Path | None,
    users: int,
    metric: str,
    output: str | None,
    overwrite: bool,
    report: Callable[[Choice], None] | None,
) -> tuple[Model, Found]:
    """As `fit_neighbourhood`; return also what the users say."""
    check_metric(metric)
    if metric.partition("@")[0] not in MEANS:
        raise OptionError("must be a mean over users", option="metric", value=metric)
    if users < 1:
        raise OptionError("must be at least 1", option="users", value=users)
    source = RunDirectory.open(path_of("run", run))
    dataset = source.dataset() if data is None else dataset_of(data)
    if dataset is None:
        raise FitError("the dataset of its training is gone, or has other features now", place=source.path)
    found: list[Found] = []
    facts: dict[str, bool] = {}

    def change(network: Network) -> None:
        name = output_name(network, output)
        evaluation = source.training.evaluation
        excludes = evaluation is None or evaluation.seen == "exclude"
        found.append(search(network, name, dataset, metric, excludes, users, report))
        if found[0].term != found[0].before.term:
            facts["other_term"] = True

    def check(model: Model) -> None:
        _check(model, output, dataset)

    model = saved_made_of(run, out, overwrite, check, change, facts)
    return model, found[0]


def _check(model: Model, output: str | None, dataset: Dataset) -> None:
    """Raise FitError or OptionError if there can be no term, or no choice of one."""
    facts, path = WeightsFacts.of(model.facts), model.run.path
    if facts.in_8_bits:
        raise OptionError(f"is {facts.form}", place=path)
    name = output_name(model.network, output)
    wanted = model.network.outputs[name].spec.field
    model.run.check_dataset(dataset)
    if facts.examples not in (None, dataset.digest):
        raise FitError(f"has other examples than those of {path}", place=dataset.path)
    known = dataset.field(wanted)
    if known.kind == "dense" or wanted not in {layer.field for layer in model.network.spec.inputs}:
        rule = f'output "{name}" has no input of its field "{wanted}" for a neighbourhood term'
        raise FitError(rule, place=path)
    if known.num_entries.get(PART, 0) == 0 or len(able_rows(dataset, wanted)) < 2:
        raise FitError(f'has no validation part of "{wanted}" with two users', place=dataset.path)
