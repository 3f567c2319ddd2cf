"""Workers that are processes: one that is killed loses nothing, and nothing is counted twice."""

import json
import sys

import pytest

from tests.mistakes import mistake
from tests.scripts import Conversation
from tests.tuning.studies import SPACE, Heard, people, with_training
from widenet.errors import GroupError
from widenet.runs import train
from widenet.tuning import worker_processes as processes
from widenet.tuning.tune import tune

DYING = """
import os, signal, sys
from pathlib import Path
from widenet.tuning import __main__
from widenet.tuning import worker_processes as processes

print("a library says something")

class Dying(processes.Telling):
    def epoch(self, trial, record):
        super().epoch(trial, record)
        if record["epoch"] == 2:
            assert Path(sys.argv[1], "trials", f"{trial:05d}", "checkpoints", "latest").exists()
            os.kill(os.getpid(), signal.SIGKILL)

__main__.Telling = Dying
sys.exit(__main__.main(*sys.argv[1:]))
"""
"""A worker that is killed in the second epoch of its first trial: an epoch begins to end only once the
checkpoint of the one before is published.
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("processes") / "data")


WORKER = "import sys; from widenet.tuning.__main__ import main; sys.exit(main(*sys.argv[1:]))"


@pytest.fixture
def replaced(monkeypatch):
    """Lets the first worker of a study be another program; all are copies of one process."""
    workers = []

    def by(program):
        class Worker(processes._Worker):
            def __init__(self, number, command, environment):
                code = WORKER if workers else program
                self.number, self.has_begun = number, False
                self.process = Conversation(command[3:], code, environment)
                workers.append(self.process)

        monkeypatch.setattr(processes, "_Worker", Worker)

    yield by
    for process in workers:
        process.close()


def test_a_killed_worker_loses_no_trial_and_none_is_counted_twice(data, tmp_path, replaced):
    replaced(DYING)
    heard = Heard()
    result = tune(SPACE, data, tmp_path / "study", trials=4, rungs=2, workers=2, report=heard)
    assert heard.said.count("Worker 0 was lost (signal SIGKILL); another one takes its place.") == 1
    assert "a library says something" in heard.said
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in result.trials} <= {"finished", "waiting"}
    stops = [(trial, epochs) for trial, epochs, _ in heard.reached]
    assert len(set(stops)) == len(stops)
    assert {trial for trial, epochs in stops if epochs == 3} == {0, 1, 2, 3}
    (lost,) = {trial for trial, start, stop in heard.begun if (start, stop) == (1, 3)}
    assert (lost, 0, 3) in heard.begun
    for trial in result.trials:
        if trial.state == "finished" or trial.number == lost:
            run = tmp_path / f"{trial.number}"
            model = train(trial.run / "network.json", trial.run / "training.json", data, run)
            assert trial.fingerprint in (None, model.facts["fingerprint"])
            assert trial.value == max(record["ndcg@5"] for record in model.run.records()[: trial.epochs])


def test_any_number_of_workers_trains_all_documents_to_the_same_bits(data, tmp_path, replaced):
    replaced(WORKER)
    space = with_training(epochs=2, optimizer={"kind": "adam", "learning_rate": {"from": [0.01, 0.1]}})
    alone, *others = (
        tune(space, data, tmp_path / f"{workers}", trials=6, rungs=1, workers=workers).trials
        for workers in (1, 2, 4)
    )
    assert len({trial.fingerprint for trial in alone}) == 6
    for trials in others:
        assert outcomes(trials) == outcomes(alone)


def outcomes(trials):
    """The metric and the fingerprint of each pair of documents, in whatever order they were tried."""
    return {str(trial.choices): (trial.value, trial.fingerprint) for trial in trials}


def test_ctrl_c_lets_every_worker_save(data, tmp_path, replaced):
    """The first worker gets SIGTERM in its second epoch, as all do after Ctrl-C, and ends with status 130.

    No worker trains an epoch again that has ended before.
    """
    replaced(DYING.replace("SIGKILL", "SIGTERM"))
    first, heard = Heard(), Heard()
    with pytest.raises(KeyboardInterrupt):
        tune(SPACE, data, tmp_path / "study", trials=2, rungs=1, workers=2, report=first)
    result = tune(SPACE, data, tmp_path / "study", trials=2, rungs=1, resume=True, report=heard)
    assert [trial.state for trial in result.trials] == ["finished", "finished"]
    assert len({*first.epochs, *heard.epochs}) == len(first.epochs) + len(heard.epochs)


def test_workers_that_begin_nothing_are_not_replaced(data, tmp_path, monkeypatch):
    class Lost(processes._Worker):
        def __init__(self, number, _command, *rest):
            super().__init__(number, [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], *rest)

    monkeypatch.setattr(processes, "_Worker", Lost)
    heard = Heard()
    with mistake(GroupError):
        tune(SPACE, data, tmp_path / "study", trials=2, workers=2, report=heard)
    assert sorted(heard.said) == [
        f"Worker {number} was lost (signal SIGKILL); it had not begun a trial." for number in (0, 1)
    ]


def test_a_search_that_joins_another_loses_no_trial_and_counts_none_twice(data, tmp_path):
    """As from another machine with the same folder, while a worker of the first one trains."""
    out, heard = tmp_path / "study", Heard()
    tune(SPACE, data, out, trials=1, rungs=2)
    worker = Conversation([str(out), str(data.path), "8"], WORKER)
    with worker.stdout as lines:
        told = [json.loads(next(lines))]
        result = tune(SPACE, data, out, trials=8, rungs=2, resume=True, report=heard)
        told += [json.loads(line) for line in lines]
    assert worker.wait() == 0
    worker.close()
    begun = [*heard.begun, *(tuple(values) for name, *values in told if name == "begin")]
    assert len({*begun}) == len(begun)
    assert {trial for trial, *_ in begun} == {*range(1, 8)}
    assert {trial.state for trial in result.trials} == {"finished", "waiting"}
