"""Training a network into a run directory: begun, resumed, or begun with another run's weights."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from widenet.arguments import with_fields_of
from widenet.checkpoint import Checkpoint
from widenet.data.dataset import Dataset
from widenet.data.stream import Stream
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.evaluate import evaluate
from widenet.kernels.bits import choose_bits
from widenet.model.build import build
from widenet.model.exchange import Exchange
from widenet.model.network import Network
from widenet.parallel.agreement import check_agreement
from widenet.parallel.group import by_all, by_leader, device_for, exchange_for, fitted, join, num_processes
from widenet.parallel.launcher import launch_id
from widenet.parallel.threads import one_thread_an_operation
from widenet.plan.job import Job
from widenet.plan.layout import Layout
from widenet.plan.machine import available_threads
from widenet.run_arguments import TrainArguments
from widenet.runs.arguments import dataset_of, documents, path_of
from widenet.runs.model import Model
from widenet.runs.seen_before import held_of, seen_before
from widenet.runs.unread import unread
from widenet.spec.metric_names import check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.arithmetic import ARITHMETIC, mixed_arithmetic
from widenet.training.begin import begun, started_again
from widenet.training.check import check_training
from widenet.training.cuda_graph import check_recordable_here
from widenet.training.environment import changes, machine
from widenet.training.in_common import SAME_FILES, check_in_common, facts_of_checkpoint, facts_of_options
from widenet.training.loop import AfterEpoch, Evaluate, Training, interruption
from widenet.training.optimizers import Optimizer, is_compiled
from widenet.training.reports import Report, Silence
from widenet.training.run_directory import UNRECORDED, RunDirectory
from widenet.training.run_path import holds_work_of
from widenet.training.saved_facts import TrainingFacts, WeightsFacts
from widenet.training.start import load_start
from widenet.training.state import LoopState

T = TypeVar("T")


@with_fields_of(TrainArguments, NetworkSpec, TrainingSpec, Dataset, Report, Network)
def train(arguments: TrainArguments) -> Model:
    """Train a network on a dataset; the run directory holds documents, checkpoints, log and finished model.

    A document that is None is a default one, which the run directory keeps, or the run's own if the training
    resumes. A resumed training has the bits of an undisturbed one, unless widenet's arithmetic has changed
    since, which the report says. Weights that another run lacks, such as those of new features, start as the
    seed says. A recorded step has the same bits as others.

    torchrun and Slurm start several processes: each must call this function, and they belong to one group
    until they end. A group that torchrun restarts resumes by itself, or begins anew if there is no checkpoint
    yet. All processes must make the same calls of the exchange in `after_epoch`.

    Returns:
        The trained model.

    Raises:
        DocumentError, DataError, FitError, CapacityError, OptionError: The documents, the dataset, the
            machine or an option does not allow the training.
        CheckpointError, NumericsError, DisagreementError, GroupError: The training could not go on.
    """
    dataset, path = dataset_of(arguments.data), path_of("out", arguments.out)
    network, training = documents(
        arguments.network, arguments.training, dataset, path if arguments.resume else None
    )
    return run_training(check_training(network, training, dataset), dataset, Launch.of(arguments))


@dataclass(frozen=True)
class Launch:
    """Where a training runs and who follows it: everything beside its documents and data.

    The fields are arguments of `train`.
    """

    out: Path
    resume: bool
    start_from: Path | None
    device: str | None
    cuda_graph: bool
    timeout: float
    report: Report | None
    interrupted: Callable[[], bool] | None
    after_epoch: AfterEpoch | None

    @classmethod
    def of(cls, arguments: TrainArguments) -> "Launch":
        """The launch of a training; raises OptionError for a path that is none."""
        start = arguments.start_from
        return cls(
            path_of("out", arguments.out),
            arguments.resume,
            None if start is None else path_of("start_from", start),
            arguments.device,
            arguments.cuda_graph,
            arguments.timeout,
            arguments.report,
            arguments.interrupted,
            arguments.after_epoch,
        )


def run_training(layout: Layout, dataset: Dataset, launch: Launch) -> Model:
    """Train a layout that has been checked against its dataset, as `train` does."""
    network_spec, training_spec = layout.network, layout.training
    chosen = _device(launch.device, training_spec)
    join(chosen, launch.timeout)
    options = facts_of_options(launch.resume, launch.start_from, launch.cuda_graph)
    check_in_common(chosen, [network_spec, training_spec], dataset, options)
    with one_thread_an_operation(), ExitStack() as stack:
        exchange = exchange_for(layout.num_shards, chosen)
        job = fitted(_job(layout, dataset, chosen, launch.cuda_graph), chosen, exchange)
        again = started_again(launch.out, exchange)
        resume = launch.resume or (
            again and exchange.collect(holds_work_of(launch.out, launch_id()), "restart")[0]
        )
        run = begun(launch.out, layout, dataset, launch.start_from, resume, exchange, stack)
        by_leader(exchange, lambda: run.note_machine(machine(dataset, chosen)), "machine")
        rule = Optimizer(network_spec.tuned(training_spec.optimizer), training_spec.l1, training_spec.l2)
        net = _built(job, rule, dataset, exchange, chosen)
        teller = launch.report if launch.report is not None and exchange.leads else Silence()
        for sentence in [*unread(network_spec, dataset), *_slow(training_spec, chosen, job.in_background)]:
            teller.say(sentence)
        with interruption(launch.interrupted) as stop:
            state = _state(run, net, dataset, teller)
            if again:
                goes_on = (
                    "begins anew, as there is no checkpoint yet"
                    if state == LoopState()
                    else "goes on from its newest checkpoint"
                )
                teller.say(f"torchrun has started this training again; it {goes_on}.")
            stream = Stream(
                dataset,
                network_spec.fields,
                training_spec.batch_size,
                training_spec.seed,
                training_spec.shuffle,
            )
            if not Training(
                run,
                net,
                rule,
                stream,
                _evaluation(training_spec, dataset),
                teller,
                state,
                launch.after_epoch,
                launch.cuda_graph,
                job.in_background,
            ).loop(stop):
                raise KeyboardInterrupt
            return _finished(run, net, state, dataset, teller)


def _device(asked: str | None, training: TrainingSpec) -> torch.device:
    """The device of this process, which from now on rounds as the training asks."""
    chosen = device_for(asked)
    choose_bits(training.bits, chosen)
    return chosen


def _built(job: Job, rule: Optimizer, dataset: Dataset, exchange: Exchange, device: torch.device) -> Network:
    """The network of a training before its first step."""
    counts = {field: dataset.counts(field) for field in job.network.counted_fields}
    network = build(job.layout, exchange, device, counts)
    for output in network.outputs.values():
        output.kept_bytes = job.kept_bytes
    network.prepare_training(rule)
    return network


def _job(layout: Layout, dataset: Dataset, device: torch.device, cuda_graph: bool) -> Job:
    """The job of a training; raises OptionError where its steps are to be recorded and cannot be."""
    job = Job.of(
        layout,
        dataset.manifest.entries_per_example,
        dataset.num_examples,
        num_processes=num_processes(),
        device="cuda" if device.type == "cuda" else "cpu",
        num_threads=available_threads() if device.type == "cpu" else 1,
        cuda_graph=cuda_graph,
    )
    if cuda_graph:
        check_recordable_here(job)
    return job


def _slow(training: TrainingSpec, device: torch.device, in_background: bool) -> Iterator[str]:
    """What this machine or this Python lacks to be fast, a sentence each."""
    if training.precision == "bfloat16" and device.type == "cpu":
        yield "A CPU multiplies bfloat16 operands in float32: training is no faster than with float32."
    if device.type == "cpu" and not is_compiled("cpu"):
        yield "Numba cannot be imported, so that torch makes the optimizer's steps, which takes longer."
    if training.checkpoints.within_epochs and not in_background:
        yield (
            "Memory has no room for a second copy of weights and optimizer state: training waits while a"
            " checkpoint is written."
        )


def _evaluation(training: TrainingSpec, dataset: Dataset) -> Evaluate | None:
    evaluation = training.evaluation
    if evaluation is None:
        return None
    ks, excludes = sorted({check_metric(evaluation.metric), 20}), evaluation.seen == "exclude"
    return lambda network: evaluate(network, dataset, evaluation.part, ks, evaluation.output, excludes)


def _state(run: RunDirectory, network: Network, dataset: Dataset, report: Report) -> LoopState:
    """Where the training of a run stands; the network and the log are brought there.

    Where the newest checkpoint is damaged or gone, the next older one that is whole serves, and the report is
    told.
    """
    state = LoopState()
    problem: CheckpointError | None = None
    check_agreement(network.exchange, run.listing(), SAME_FILES)
    for find in run.candidates():
        try:
            checkpoint = _filled(network, find, lambda found: _check_resumable(run, found, dataset, network))
        except CheckpointError as error:
            problem = problem or error
            continue
        if checkpoint is None:
            continue
        if problem is not None:
            report.say(f"{problem} Going on from {checkpoint.path.name} instead.")
        facts = TrainingFacts.of(checkpoint.facts)
        if facts.documents is None:
            report.say(f"{checkpoint.path}: {UNRECORDED}")
        state = facts.state
        _say_what_changed(run, facts, network.device, state, report)
        _go_on_in_own_arithmetic(run, state, report)
        break
    else:
        if problem is not None:
            raise problem
        load_start(run, network, report.say)
        _inherit_arithmetic(run, state, report)
        by_leader(network.exchange, lambda: _say_what_was_seen(run, dataset, report), "earlier trainings")
    _check_best(run, network, state)
    by_leader(network.exchange, lambda: run.rewind_log(state.epoch), "log")
    return state


def _check_best(run: RunDirectory, network: Network, state: LoopState) -> None:
    """Raise CheckpointError where a state names an evaluation as the best whose weights are not there, or
    damaged.
    """
    epoch = state.best_epoch
    if run.training.keep == "best" and epoch is not None:
        _for_all(network, lambda: run.best(state.epoch, epoch)).check_files(network)


def _for_all(network: Network, find: Callable[[], T]) -> T:
    """What every process finds for itself; what goes wrong in one goes wrong in all."""
    found: list[T] = []
    by_all(network.exchange, lambda: found.append(find()), "checkpoint")
    return found[0]


def _say_what_was_seen(run: RunDirectory, dataset: Dataset, report: Report) -> None:
    """Tell the report what the dataset holds out although the weights that the run begins with were
    trained on it.
    """
    for sentence in seen_before(run, None, dataset, held_of(run, dataset)):
        report.say(f"{sentence} Its metrics will be too good.")


def _say_what_changed(
    run: RunDirectory, facts: TrainingFacts, device: torch.device, state: LoopState, report: Report
) -> None:
    """Tell the report which libraries or instruction sets are not those that the steps so far were made
    with.
    """
    changed = changes(facts.environment, device)
    if changed and not state.has_ended(run.training):
        rest = "from here on bits may differ from an undisturbed training's"
        report.say(
            f"{run.path} resumes with other software or another processor ({'; '.join(changed)}): {rest}."
        )


def _go_on_in_own_arithmetic(run: RunDirectory, state: LoopState, report: Report) -> None:
    """Note, and tell the report, where the next steps round in another way than those before."""
    before = state.arithmetic[-1]
    if before != ARITHMETIC and not state.has_ended(run.training):
        state.arithmetic.append(ARITHMETIC)
        rule = (
            f"{run.path} was begun with version {before} of the arithmetic; this widenet has version"
            f" {ARITHMETIC}"
        )
        report.say(
            f"{rule}: from here on bits may differ from an undisturbed training's, and its fingerprint"
            " compares with no other."
        )


def _inherit_arithmetic(run: RunDirectory, state: LoopState, report: Report) -> None:
    """Note, and tell the report, where the weights that a run begins with came of steps that may round in
    different ways.
    """
    model = {} if run.start is None else Checkpoint.open(run.start / "model").facts
    before = WeightsFacts.of(model).arithmetic
    if len(before) > 1:
        state.arithmetic = before if before[-1] == ARITHMETIC else [*before, ARITHMETIC]
        report.say(mixed_arithmetic(str(run.start)))


def _finished(
    run: RunDirectory, network: Network, state: LoopState, dataset: Dataset, report: Report
) -> Model:
    """The model of a training that has ended, saved: with the last weights, or the best where its document
    says so.
    """
    if run.training.keep == "best" and state.best_epoch is not None:
        epoch = state.best_epoch
        best = _for_all(network, lambda: run.best(state.epoch, epoch))
        best.load_into(network, with_state=False)
        report.say(
            f"The weights of epoch {state.best_epoch} are kept: of all evaluations, theirs was the best."
        )
    facts = {
        "epochs": state.epoch,
        "best": state.best,
        "best_epoch": state.best_epoch,
        "examples": dataset.digest,
        "arithmetic": state.arithmetic,
    }
    return Model(run, network, run.save_model("model", network, facts).facts)


def _filled(
    network: Network, find: Callable[[], Checkpoint | None], check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    """The checkpoint that is found, checked and read into a network; what goes wrong in one process goes
    wrong in all.
    """
    checkpoint = _for_all(network, find)
    check_agreement(network.exchange, facts_of_checkpoint(checkpoint), SAME_FILES)
    if checkpoint is not None:
        check(checkpoint)
        checkpoint.load_into(network, with_state=True)
    return checkpoint


def _check_resumable(run: RunDirectory, checkpoint: Checkpoint, dataset: Dataset, network: Network) -> None:
    """Raise where going on from a checkpoint would not give the bits of an undisturbed training."""
    facts, now = TrainingFacts.of(checkpoint.facts), network.device.type
    if facts.examples != dataset.digest:
        raise FitError(
            f"{dataset.path} does not hold the examples that {run.path} was begun with. Resume with that"
            " dataset."
        )
    if facts.is_compiled not in (None, is_compiled(now)) and now == facts.device:
        how, where = ("with", "can") if facts.is_compiled else ("without", "cannot")
        compiler = "Numba" if now == "cpu" else "Triton"
        raise FitError(
            f"{run.path} was begun {how} {compiler}, which rounds in its own way. Resume where Python {where}"
            f" import {compiler.lower()}."
        )
    before = facts.device
    if before not in (None, now):
        raise OptionError(
            f'device must be "{before}", on which {run.path} was begun; got "{now}". Resume with'
            f" `device={before!r}`."
        )
