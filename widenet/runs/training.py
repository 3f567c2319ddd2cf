"""Training a network into a run directory: from documents and a dataset, or from interactions in one call."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from widenet.arguments import typed, with_fields_of
from widenet.baselines.evaluate import evaluate
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.stream import Stream
from widenet.errors import OptionError
from widenet.kernels.native import choose_bits, multiplies_bfloat16
from widenet.model.build import build
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer, is_compiled
from widenet.model.product import own_examples
from widenet.model.storage import HostMemory, Scratch, Store
from widenet.parallel.exchange import Exchange, fixed_arithmetic
from widenet.parallel.group import (
    by_all,
    by_leader,
    device_for,
    exchange_for,
    fitted,
    join,
    num_processes,
)
from widenet.parallel.launch import launch_name
from widenet.plan.layout import Job, Layout, WeightsIn
from widenet.plan.machine import available_threads
from widenet.plan.memory import NAMES, elsewhere_bytes, streamed_bytes
from widenet.plan.numbers import amount
from widenet.predict.terms import count_neighbours
from widenet.runs.cutting import Cut
from widenet.runs.documents import path_of, prepared, run_of, start_of
from widenet.runs.machines import fetch, ready
from widenet.runs.model import Model
from widenet.runs.neighbourhood import fit_terms
from widenet.runs.progress import IngestReport, TrainingReport
from widenet.runs.run_arguments import TrainArguments
from widenet.spec.metric_names import check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores.durable import remove
from widenet.tracking.mlflow_run import check_tracker, followed
from widenet.training.begin import begun, restored_state, started_again
from widenet.training.facts import check_in_common, facts_of_options, machine
from widenet.training.loop import Evaluate, Training, interruption
from widenet.training.run_directory import RunDirectory, with_network_of
from widenet.training.run_path import DATA, check, hidden, holds_work_of, identity
from widenet.training.state import LoopState, Report, Silence


@with_fields_of(TrainArguments, NetworkSpec, TrainingSpec, Dataset, Report, Network)
def train(arguments: TrainArguments) -> Model:
    """Train a network on a dataset; the run directory holds documents, checkpoints, log and finished model.

    If a document is None, widenet uses a default and saves it in the run directory; a resumed training uses
    the run's own. A resumed training has the bits of an undisturbed one, unless widenet's arithmetic has
    changed since, which the report says. Weights that another run lacks, such as those of new features, get
    their initial values.

    torchrun and Slurm start several processes: each must call this function, and they belong to one group
    until they end. A group that torchrun restarts resumes by itself, or starts over if there is no checkpoint
    yet. All processes must make the same calls of the exchange in `after_epoch`.

    Returns:
        The trained model.

    Raises:
        DocumentError, DataError, FitError, CapacityError, OptionError: The documents, the dataset, the
            machine or an option does not allow the training.
        CheckpointError, NumericsError, DisagreementError, GroupError: The training could not continue.
    """
    report = arguments.report
    with prepared(arguments, None if report is None else report.say) as (layout, dataset):
        return run_training(layout, dataset, arguments)


def run_training(layout: Layout, dataset: Dataset, arguments: TrainArguments) -> Model:
    """Train a layout that has been checked against its dataset, as `train` does.

    Args:
        layout: The layout of the two documents, which are not read again.
        dataset: The opened dataset, which is not opened again.
        arguments: The other arguments.
    """
    (out, mirror), start_from = run_of(arguments.out, resume=False), start_of(arguments)
    network_spec, training_spec = layout.network, layout.training
    device = device_of(arguments.device, training_spec)
    check_place(arguments, device)
    join(device, arguments.timeout)
    options = facts_of_options(arguments.resume, start_from)
    check_in_common(device, [network_spec, training_spec], dataset, options)
    with fixed_arithmetic(), ExitStack() as stack:
        place = arguments.weights_in
        job = job_of(layout, dataset, device, place or "device")
        exchange = exchange_for(layout.num_shards, device)
        job = fitted(job, device, exchange, chooses_place=place is None)
        if arguments.scratch is not None:  # refuses the folder before the run begins
            elsewhere(job, folder_of(arguments, out), device, exchange)
        restarted = started_again(out, mirror, exchange)
        resume = arguments.resume or (
            restarted and any(exchange.collect(holds_work_of(out, mirror, launch_name()), "restart"))
        )
        if arguments.track is not None and not restarted:
            by_leader(exchange, partial(check_tracker, arguments.track, out if resume else None), "tracker")
        if mirror is not None:
            resume = ready(mirror, exchange, resume)
        run, dataset = begun(
            out, layout, dataset, start_from, resume, arguments.overwrite, exchange, stack, mirror
        )
        rule = Optimizer(network_spec.tuned(training_spec.optimizer), training_spec.l1, training_spec.l2)
        store = elsewhere(job, folder_of(arguments, out), device, exchange)
        network = built(job, rule, dataset, exchange, device, store)
        track = arguments.track or training_spec.track
        report = _report(arguments, track, run, dataset, exchange, stack)
        slow = [_moved(job)] if place is None and job.weights_in != "device" else []
        slow += _slow(training_spec, device, job)
        for sentence in slow:
            report.say(sentence)
        with interruption(arguments.interrupted) as stop:
            state = restored_state(run, network, dataset, report)
            by_leader(exchange, lambda: run.note_machine(machine(dataset, device)), "machine")
            if restarted:
                _report_restart(state, report)
            training = Training(
                run,
                network,
                rule,
                stream_of(layout, dataset, exchange),
                evaluation_of(training_spec, dataset),
                report,
                state,
                arguments.after_epoch,
                job.in_background,
            )
            if not training.loop(stop):
                raise KeyboardInterrupt
            return _finished(run, network, state, dataset, report, stop)


def _report(
    arguments: TrainArguments,
    track: str | None,
    run: RunDirectory,
    dataset: Dataset,
    exchange: Exchange,
    stack: ExitStack,
) -> Report:
    """What follows the training in this process: the caller's report and the tracker, in the leader.

    A tracker that only the document names was not checked: if it fails, it says so, and the training goes on.
    A resumed training has that of the document with which it resumes, not of the one in the run.
    """
    if not exchange.leads:
        return Silence()
    report = arguments.report or Silence()
    return report if track is None else stack.enter_context(followed(report, track, run, dataset))


def _report_restart(state: LoopState, report: Report) -> None:
    """Report that torchrun has restarted the training, and where it stands."""
    outcome = "it resumes from its newest checkpoint"
    if state == LoopState():
        outcome = "it starts over, since it has no checkpoint yet"
    report.say(f"torchrun has restarted this training; {outcome}.")


def device_of(name: str | None, training: TrainingSpec) -> torch.device:
    """Choose the device of this process and set how it rounds."""
    chosen = device_for(name)
    choose_bits(training.bits, chosen)
    return chosen


def built(
    job: Job,
    rule: Optimizer,
    dataset: Dataset,
    exchange: Exchange,
    device: torch.device,
    place: Store | None = None,
) -> Network:
    """Build the network of a training, before its first step."""
    described = job.layout.described
    fields = {name: job.layout.rows_field(weight) for name, weight in described.items()}
    counted = dict.fromkeys([*job.network.counted_fields, *fields.values()])
    counts = {field: dataset.counts(field) for field in counted}
    attributes = {
        name: dataset.described_rows(fields[name], weight.described_by) for name, weight in described.items()
    }

    def make() -> Network:
        network = build(job.layout, exchange, device, counts, place, attributes)
        for output in network.outputs.values():
            output.kept_bytes = job.kept_bytes
            count_neighbours(output, dataset)
        network.prepare_training(rule)
        return network

    return make() if place is None else by_all(exchange, make, "weights")


def stream_of(layout: Layout, dataset: Dataset, exchange: Exchange) -> Stream:
    """Return the batches of a training."""
    training = layout.training
    return Stream(
        dataset,
        layout.network.fields,
        training.batch_size,
        training.seed,
        training.shuffle,
        own=own_examples(layout, exchange),
    )


def job_of(layout: Layout, dataset: Dataset, device: torch.device, weights_in: WeightsIn = "device") -> Job:
    """The job of a training; on a CPU the host's memory is the device's."""
    return Job(
        layout,
        dataset.manifest.entries_per_example,
        dataset.num_examples,
        num_processes=num_processes(),
        device="cuda" if device.type == "cuda" else "cpu",
        num_threads=available_threads() if device.type == "cpu" else 1,
        weights_in="device" if weights_in == "host" and device.type == "cpu" else weights_in,
    )


def _slow(training: TrainingSpec, device: torch.device, job: Job) -> Iterator[str]:
    """A sentence for each reason why training is slower than it could be here."""
    if training.precision == "bfloat16" and device.type == "cpu" and not multiplies_bfloat16():
        yield "This CPU multiplies bfloat16 operands in float32: training is no faster than with float32."
    if device.type == "cpu" and not is_compiled("cpu"):
        yield "widenet was installed without its native library: torch makes all passes, which takes longer."
    if training.checkpoints.every_steps and not job.in_background:
        yield "Training waits while a checkpoint is written: memory has no room for a copy of what it holds."


def evaluation_of(
    training: TrainingSpec, dataset: Dataset, advance: Callable[[int], None] | None = None
) -> Evaluate | None:
    """Return the function that evaluates a network after an epoch; None without an evaluation.

    Args:
        training: The training document.
        dataset: The examples.
        advance: Called with the number of examples done since the last call.
    """
    evaluation = training.evaluation
    if evaluation is None:
        return None
    ks, excludes = sorted({check_metric(evaluation.metric), 20}), evaluation.seen == "exclude"
    return lambda network: evaluate(
        network, dataset, evaluation.part, ks, evaluation.output, excludes, advance
    )


def _finished(
    run: RunDirectory,
    network: Network,
    state: LoopState,
    dataset: Dataset,
    report: Report,
    interrupted: Callable[[], bool],
) -> Model:
    """Save and return the model of a finished training: its last weights, or the best if it keeps these."""
    epochs = run.training.epochs
    if state.epoch < epochs:
        waited = f"the last {state.waited} evaluations were" if state.waited > 1 else "its evaluation was"
        report.say(f"Stopped early, after epoch {state.epoch} of {epochs}: {waited} not better.")
    if run.training.keep == "best" and state.best_epoch is not None:
        epoch = state.best_epoch
        best = by_all(network.exchange, lambda: run.best(state.epoch, epoch), "checkpoint")
        fetch(run.mirror, best, network)
        best.load_into(network, with_state=False)
        report.say(f"Keeping the weights of epoch {state.best_epoch}, whose evaluation was the best.")
    facts = {
        "epochs": state.epoch,
        "best": state.best,
        "best_epoch": state.best_epoch,
        "examples": dataset.digest,
    }
    evaluate = evaluation_of(run.training, dataset)
    of_fit = fit_terms(run, network, dataset, evaluate, report, interrupted)
    saved = run.save_model("model", network, {**facts, **of_fit})
    return Model(with_network_of(run, saved), network, saved.facts)


def check_place(arguments: TrainArguments, device: torch.device) -> None:
    """Raise OptionError if a device cannot have its weights where they are asked for."""
    if arguments.scratch is not None and arguments.weights_in != "disk":
        raise OptionError("is for `weights_in` disk", option="scratch")
    if arguments.weights_in == "disk" and device.type != "cpu":
        raise OptionError('must be "device" or "host" on CUDA', option="weights_in", value="disk")


def _moved(job: Job) -> str:
    """Return what a user should know of wide weights that the plan has put elsewhere."""
    held = amount(elsewhere_bytes(job, 0))
    read, written = (amount(size) for size in streamed_bytes(job, 0))
    moved = f"a step copies {read} to the device and {written} back"
    if job.weights_in == "disk":
        moved = f"a step reads {read} and writes {written}"
    return (
        f"{NAMES[job.weights_in]}: memory has no room for {held} of wide weights and optimizer state, so"
        f" {moved} in each process. `weights_in='device'` refuses instead."
    )


def elsewhere(job: Job, folder: Path, device: torch.device, exchange: Exchange) -> Store | None:
    """Make the file in a folder or the host's memory for wide weights; None if the device has them."""
    match job.weights_in:
        case "disk":
            return by_all(exchange, lambda: Scratch(folder), "scratch")
        case "host":
            return HostMemory(device)
    return None


def folder_of(arguments: TrainArguments, out: Path) -> Path:
    """Return the folder of the file for wide weights: the run directory unless another is named."""
    return out if arguments.scratch is None else path_of("scratch", arguments.scratch)


@typed
def fit(
    interactions: Any,
    out: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: float | None = None,
    time: str | None = None,
    items: Any = None,
    items_id: str | None = None,
    items_title: str | None = None,
    titles: Any = None,
    title_id: str | None = None,
    title: str | None = None,
    device: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Model:
    """Train a recommender on interactions with the usual documents, and return it.

    It makes a dataset, sets a validation part aside, and trains until three evaluations are not better. It
    keeps the weights of the best one. The run directory holds the dataset too, in its folder
    `data`, and all else is as after `ingest`, `split` and `train`. `Model.load(out)` opens the model again.

    Ctrl-C saves a checkpoint; `train(None, None, out + "/data", out, resume=True)` continues from it.

    Args:
        interactions: A path, a pandas, Polars or Arrow table, a SciPy matrix, a dictionary of columns, or a
            list of sources; see `ingest`.
        out: The run directory to make.
        user: Column with the user. Default: guessed from the names of the columns.
        item: Column with the item. Default: guessed likewise.
        value: Column with a number for each interaction, such as a rating, that the network reads.
        min_value: Keep only interactions with at least this value, and no values. Default column: guessed.
        time: Column with the time. Each user's newest item is then the validation part, instead of a random
            tenth of each user's items.
        items: A file or a table of items with their attributes, and perhaps titles; see `ingest`.
        items_id: Column of `items` with the id. Default: the only one that holds all items.
        items_title: Column of `items` with the title. Default: guessed.
        titles: A file or a table with ids and titles of items.
        title_id: Column of `titles` with the id. Default: the only one that holds all items.
        title: Column of `titles` with the title. Default: guessed.
        device: "cpu" or "cuda". Default: cuda if there is a device.
        overwrite: Whether to replace an earlier run at `out`, once the new one has a checkpoint.
        quiet: Whether to show no progress.

    Returns:
        The trained model.

    Raises:
        CheckpointError: `out` exists already, or cannot be made.
        DataError: The interactions break a rule; the message names place, column, rule and value.
        OptionError: An argument is wrong.
    """
    path = Path(out)
    if num_processes() > 1:
        raise OptionError("fit runs in one process")
    check(path, (), overwrite)
    columns = {"user": user, "item": item, "value": value, "min_value": min_value, "time": time}
    columns |= {"items": items, "items_id": items_id, "items_title": items_title}
    columns |= {"titles": titles, "title_id": title_id, "title": title}
    report, earlier = TrainingReport(quiet), identity(path)
    try:
        with ExitStack() as stack:
            data = _dataset(interactions, path, report, columns, stack)
            return train(None, None, data, path, device=device, report=report, overwrite=overwrite)
    except KeyboardInterrupt:
        if (path / "checkpoints" / "latest").is_file() and identity(path) != earlier:
            report.stop()
            chosen = "" if device is None else f", device={device!r}"
            report.say(
                f"Stopped; {path} holds a checkpoint. Continue with widenet.train(None, None,"
                f" {str(path / DATA)!r}, {str(path)!r}, resume=True{chosen})."
            )
        raise
    finally:
        report.stop()


def _dataset(
    interactions: Any, path: Path, report: TrainingReport, columns: Mapping[str, Any], stack: ExitStack
) -> Dataset:
    """Make the dataset of a run in the hidden folder that becomes it, with a validation part if it can.

    Args:
        interactions: The interactions.
        path: The run.
        report: Shows the progress.
        columns: Arguments of `ingest`.
        stack: Removes what the run has not taken.
    """
    made = stack.enter_context(hidden(path))
    with IngestReport(report.quiet) as progress:
        whole = ingest(
            interactions,
            made / "whole",
            keep_times=columns["time"] is not None,
            on_progress=progress.phase,
            on_rows=progress.rows,
            **columns,
        )
    cut = Cut.of(whole, "items")
    cut.note(made)
    cut.make(whole, made)
    if cut.options:
        remove(whole.path)
    else:
        whole.path.rename(made / DATA)
    return Dataset.open(made / DATA)
