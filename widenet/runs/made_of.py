"""Runs that are made of trained ones: in 8 bits, or with another neighbourhood term."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from widenet.arguments import check_local, typed
from widenet.baselines.evaluate import output_name
from widenet.data.dataset import Dataset
from widenet.data.known import RUN_FIELDS
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.model.network import Network
from widenet.model.quantized_part import QuantizedPart, fits_in_8_bits
from widenet.model.weight import Part
from widenet.parallel.group import by_leader
from widenet.runs.cutting import Cut
from widenet.runs.documents import dataset_of, path_of
from widenet.runs.model import Model
from widenet.runs.run_arguments import CHOOSING_METRIC, CHOOSING_USERS
from widenet.runs.term_search import PART, Choice, Found, able_rows, search
from widenet.spec.metric_names import MEANS, check_metric
from widenet.spec.network import NetworkSpec
from widenet.stores.uri import is_uri
from widenet.training.run_directory import RunDirectory, WeightsFacts, in_8_bits, with_network_of
from widenet.training.run_path import DATA, FITTED, START, VECTORS, WHOLE, begun, write_whole

_COPIED = (
    "network.json",
    FITTED,
    "training.json",
    RUN_FIELDS,
    "vocabulary",
    "attributes",
    "log.jsonl",
    START,
    VECTORS,
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
    if overwrite and (path / DATA).is_dir():
        raise CheckpointError("holds a dataset, which would go with it", place=path)
    if path.resolve().is_relative_to(source.path.resolve()):
        raise OptionError(
            f"must not lie in {source.path}, which it is made of", option="out", value=str(path)
        )
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
            weight.parts = dict(network.exchange.each(partial(_rounded, weight.parts)))
    for output in network.outputs.values():
        output.__dict__.pop("whole_shards", None)  # of the parts before, if the network has ranked


def _rounded(parts: Mapping[int, Part], shard: int) -> tuple[int, Part]:
    return shard, QuantizedPart.of(parts[shard])


def _check_weights(model: Model) -> None:
    """Raise OptionError if a run cannot be put into 8 bits."""
    if in_8_bits(model.facts):
        raise OptionError("is in 8 bits already", place=model.run.path)
    if not any(map(fits_in_8_bits, model.network.layout.weights.values())):
        raise OptionError(
            "has no vectors of sparse inputs, or of outputs after hidden layers, to put into 8 bits",
            place=model.run.path,
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
