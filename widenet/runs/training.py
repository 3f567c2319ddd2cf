"""Training a network into a run directory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import torch

from widenet.arguments import with_fields_of
from widenet.baselines.evaluate import evaluate
from widenet.data.dataset import Dataset
from widenet.data.stream import Stream
from widenet.kernels.bits import choose_bits
from widenet.kernels.native import multiplies_bfloat16
from widenet.model.build import build
from widenet.model.by_examples import own_examples
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer, is_compiled
from widenet.model.storage import Store
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import (
    by_all,
    by_leader,
    device_for,
    exchange_for,
    fitted,
    join,
    num_processes,
)
from widenet.parallel.launch import launch_id
from widenet.parallel.threads import fixed_arithmetic
from widenet.plan.descriptions import described_weights
from widenet.plan.job import Job, WeightsIn
from widenet.plan.layout import Layout
from widenet.plan.machine import available_threads
from widenet.plan.streaming import NAMES
from widenet.predict.terms import count_neighbours
from widenet.runs.documents import run_of, start_of
from widenet.runs.machines import fetch, ready
from widenet.runs.model import Model
from widenet.runs.place_of_weights import check_place, check_scratch, chosen, elsewhere, folder_of
from widenet.runs.prepared import prepared
from widenet.runs.resume import agreed, restored_state
from widenet.runs.run_arguments import TrainArguments
from widenet.runs.term_search import fit_terms, unfitted
from widenet.spec.metric_names import check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.tracking.follow import check_tracker, followed
from widenet.training.begin import begun, started_again
from widenet.training.environment import machine
from widenet.training.in_common import check_in_common, facts_of_options
from widenet.training.loop import Evaluate, Training, interruption
from widenet.training.run_directory import RunDirectory, with_network_of
from widenet.training.run_path import holds_work_of, launch_note
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
        if job.weights_in == "disk":
            check_scratch(job, arguments, out, exchange)
        restarted = started_again(launch_note(out, mirror), exchange)
        resume = arguments.resume or (
            restarted and any(exchange.collect(holds_work_of(out, mirror, launch_id()), "restart"))
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
        slow = [*chosen(job, place, store), *_slow(training_spec, device, job)]
        for sentence in [*unfitted(run, dataset), *slow]:
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
    described = described_weights(job.layout)
    counted = dict.fromkeys([*job.network.counted_fields, *(own.field for own in described.values())])
    counts = {field: dataset.counts(field) for field in counted}
    attributes = {name: dataset.described_rows(own.field, own.names) for name, own in described.items()}

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
    return Job.of(
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
    if training.checkpoints.within_epochs and job.weights_in != "device":
        yield f"{NAMES[job.weights_in]} have no second copy: training waits while a checkpoint is written."
    elif training.checkpoints.within_epochs and not job.in_background:
        yield (
            "Memory has no room for a second copy of weights and optimizer state: training waits while a"
            " checkpoint is written."
        )


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
        best = agreed(network, lambda: run.best(state.epoch, epoch))
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
