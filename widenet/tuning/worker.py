"""A worker takes a trial of a study, trains it to its end or until others are better, and takes another."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from widenet.data.dataset import Dataset
from widenet.errors import (
    CapacityError,
    DocumentError,
    FitError,
    GroupError,
    NumericsError,
    WidenetError,
    worded,
)
from widenet.parallel.launch import LAUNCHER, SAVE_SECONDS, end_with_launcher
from widenet.plan.machine import available_threads
from widenet.runs.run_arguments import TrainArguments
from widenet.runs.run_log import kept_line
from widenet.runs.training import run_training
from widenet.training.loop import interruption
from widenet.training.run_directory import RunDirectory
from widenet.tuning.results import StudyReport
from widenet.tuning.space import layout_of
from widenet.tuning.study import Study, quiet, suggested

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

_PAUSE_SECONDS = 0.5
"""Seconds between two looks at a study in which there is nothing to do until other workers are done."""
_OWN_PROBLEMS = (CapacityError, DocumentError, FitError, NumericsError)
"""Errors with which a trial fails alone."""
_PROGRAM = ("-m", "widenet.tuning")
_INTERRUPTED = 130
"""Exit status of a worker that Ctrl-C or SIGTERM has ended."""


def work(study: Study, num_trials: int, dataset: Dataset, report: StudyReport) -> None:
    """Train trials of a study until it is over.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the trial that was trained has a checkpoint.
    """
    is_given_away = False

    def train(lock: IO[str], trial: "Trial") -> float:
        nonlocal is_given_away
        lock.close()
        report.begin(trial.user_attrs["run"])
        try:
            return _trained(study, trial, dataset, interrupted)
        finally:
            is_given_away = study.is_given_away(trial)

    def end(_: object, trial: "FrozenTrial") -> None:
        report.end(study.result(trial))

    with interruption(None) as interrupted, quiet():
        while not interrupted():
            with study.lock() as lock:
                has_trial = study.next_trial(num_trials, dataset)
                if has_trial:
                    try:
                        study.trials.optimize(
                            partial(train, lock), n_trials=1, catch=_OWN_PROBLEMS, callbacks=[end]
                        )
                    except ValueError:  # of Optuna, which is told the end of a trial that has ended
                        if not is_given_away:
                            raise
                        report.say("A worker was slow and counted as lost; its trial was given away.")
            if has_trial is None:
                return
            if not has_trial:
                time.sleep(_PAUSE_SECONDS)
        raise KeyboardInterrupt


def _trained(study: Study, trial: "Trial", dataset: Dataset, interrupted: Callable[[], bool]) -> float:
    """Train a trial, whose run may be begun, and return its metric.

    Raises:
        TrialPruned: Others were better at a rung.
        KeyboardInterrupt: It was interrupted, and is queued again.
        WidenetError: It cannot be trained.
    """
    from optuna import TrialPruned

    run, is_stopped = study.run(trial.user_attrs["run"]), False

    def value() -> float | None:
        records = [line for line in RunDirectory.open(run).records() if study.metric in line]
        return float(kept_line(layout.training, records)[study.metric]) if records else None

    def is_worse(_: object, epoch: int) -> bool:
        nonlocal is_stopped
        if (now := value()) is not None and epoch not in study.known(trial).intermediate_values:
            trial.report(now, epoch)
        is_stopped = epoch < study.facts.rungs[-1] and trial.should_prune()
        return is_stopped

    try:
        layout = layout_of(study.space, dataset, partial(suggested, trial))
        arguments = TrainArguments(
            None,
            None,
            dataset,
            run,
            resume=(run / "network.json").is_file(),
            device=study.facts.device,
            interrupted=interrupted,
            after_epoch=is_worse,
        )
        model = run_training(layout, dataset, arguments)
    except _OWN_PROBLEMS as error:
        trial.set_user_attr("problem", str(error))
        raise
    except KeyboardInterrupt:
        if is_stopped:
            raise TrialPruned from None
        if not study.is_given_away(trial):
            study.queue_again(trial)
        raise
    trial.set_user_attr("fingerprint", model.facts["fingerprint"])
    found = value()
    assert found is not None, "the last epoch is evaluated"
    return found


def main(study: str, data: str, num_trials: str) -> int:
    """Be one of several worker processes: train trials until the study is over; return the exit status."""
    end_with_launcher()
    try:
        work(Study.open(Path(study)), int(num_trials), Dataset.open(data), StudyReport())
    except WidenetError as error:
        print(f"widenet: {worded(error)}", file=sys.stderr)  # noqa: T201
        return error.status
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def run_workers(study: Study, data: Path, num_trials: int, num_workers: int, report: StudyReport) -> None:
    """Run a study in several processes of this machine until it is over.

    If a signal ends a worker, another one resumes its trial. Ctrl-C and SIGTERM let every worker save a
    checkpoint; so does the end of this process.

    Raises:
        KeyboardInterrupt: After Ctrl-C or SIGTERM, when all workers have ended.
        GroupError: All workers were lost, or ended with errors, which they have printed.
    """
    words = [sys.executable, *_PROGRAM, f"{study.path}", f"{data}", f"{num_trials}"]
    told, num_lost = {trial.number for trial in study.results().trials if trial.state != "training"}, 0
    workers: list[subprocess.Popen[bytes]] = []
    with interruption(None) as interrupted:
        try:
            for number in range(num_workers):
                own = _environment(study, number, num_workers)
                worker = subprocess.Popen(  # noqa: S603 our own command
                    words, env=own, stdout=subprocess.DEVNULL, start_new_session=True
                )
                workers.append(worker)
            while any(worker.poll() is None for worker in workers) and not interrupted():
                time.sleep(_PAUSE_SECONDS)
                lost = [worker.returncode for worker in workers if worker.poll()]
                for status in lost[num_lost:]:
                    report.say(f"A worker was lost, with status {status}.")
                num_lost = len(lost)
                for trial in study.results().trials:
                    if trial.state != "training" and trial.number not in told:
                        told.add(trial.number)
                        report.end(trial)
        finally:
            for worker in workers:
                worker.terminate()
            deadline = time.monotonic() + SAVE_SECONDS
            for worker in workers:
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(max(0.0, deadline - time.monotonic()))
                worker.kill()
    if interrupted():
        raise KeyboardInterrupt
    if 0 not in [worker.wait() for worker in workers]:
        raise GroupError("were all lost, or ended with an error", option="workers")


def _environment(study: Study, number: int, num_workers: int) -> dict[str, str]:
    """Return the variables of a worker: its share of the processors, and one of the CUDA devices."""
    own = {LAUNCHER: f"{os.getpid()}"}
    environment = {"WIDENET_THREADS": f"{available_threads(num_workers)}", **os.environ, **own}
    if study.facts.device == "cuda":
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [f"{each}" for each in range(torch.cuda.device_count())]
        environment["CUDA_VISIBLE_DEVICES"] = names[number % len(names)]
    return environment
