"""Chooses the neighbourhood term of a trained run, by a metric of its validation part."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.errors import FitError, OptionError
from widenet.evaluate import output_name
from widenet.model.network import Network
from widenet.runs.arguments import CHOOSING_METRIC, CHOOSING_USERS
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.made_of import saved_made_of
from widenet.runs.model import Model
from widenet.runs.term_search import PART, Choice, Found, able_rows, search
from widenet.spec.metric_names import MEANS, check_metric
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts


@dataclass(frozen=True)
class Fitted:
    """The model of a new run, and what was found for its output."""

    model: Model
    found: Found


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
    begun: Callable[[Model], None] | None = None,
) -> Fitted:
    """As `fit_neighbourhood`, with what the users say; `begun` gets the run's model before the search."""
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
        if begun is not None:
            begun(model)

    model = saved_made_of(run, out, overwrite, check, change, facts)
    return Fitted(model, *found)


def _check(model: Model, output: str | None, dataset: Dataset) -> None:
    """Raise FitError or OptionError if there can be no term, or no choice of one."""
    facts, path = WeightsFacts.of(model.facts), model.run.path
    if facts.in_8_bits:
        raise OptionError(
            f"{path} is {facts.form}. Choose the term for {facts.made_of}, then make the result smaller."
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
    if known.num_entries.get(PART, 0) == 0 or len(able_rows(dataset, wanted)) < 2:
        raise FitError(
            f'{path}: its dataset, {dataset.path}, has no validation part of "{wanted}" with two users. Set'
            " one aside with `widenet data split`, and train again."
        )
