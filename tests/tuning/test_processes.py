"""Workers that are processes: one that is killed loses nothing, and nothing is counted twice."""

import json
import signal

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, Heard, people, with_training
from widenet.errors import FitError, GroupError
from widenet.runs import train
from widenet.tuning import worker
from widenet.tuning.tune import tune

DYING = """
import os, sys
from pathlib import Path
from widenet.runs.training import TrainArguments
from widenet.tuning import study, worker

study.BEAT_SECONDS, study.LOST_SECONDS = 1, 3
print("a library says something")
is_first = not (died := Path(sys.argv[1]) / "died").exists()
died.touch()
train = worker.run_training

def dying(layout, dataset, arguments):
    after = arguments.after_epoch
    def after_epoch(network, epoch):
        if is_first and epoch == 2:
            os.kill(os.getpid(), SIGNAL)
        return after(network, epoch)
    object.__setattr__(arguments, "after_epoch", after_epoch)
    return train(layout, dataset, arguments)

worker.run_training = dying
sys.exit(worker.main(*sys.argv[1:]))
"""
"""The first worker of a study gets a signal in the second epoch of its first trial."""

SMALL = with_training(epochs=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("processes") / "data")


def be(monkeypatch, code):
    """Let workers be another program."""
    monkeypatch.setattr(worker, "_PROGRAM", ("-c", code))


def outcomes(trials):
    """The metric and the fingerprint of each pair of documents, in whatever order they were tried."""
    return {str(trial.choices): (trial.value, trial.fingerprint) for trial in trials}


def test_a_killed_worker_loses_no_trial_and_none_is_counted_twice(data, tmp_path, monkeypatch):
    be(monkeypatch, DYING.replace("SIGNAL", f"{int(signal.SIGKILL)}"))
    heard = Heard()
    result = tune(SMALL, data, tmp_path / "study", trials=4, rungs=1, workers=2, report=heard)
    assert len([text for text in heard.said if "lost" in text]) == 1
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in result.trials} == {"finished"}
    assert sorted(trial.number for trial in heard.ended) == [0, 1, 2, 3]
    [lost] = [number for number in range(4) if heard.begun.count(number) == 2]
    for trial in result.trials[lost], result.best:
        model = train(
            trial.run / "network.json", trial.run / "training.json", data, tmp_path / f"{trial.number}",
            overwrite=True,
        )  # fmt: skip
        assert trial.fingerprint == model.facts["fingerprint"]


@pytest.mark.slow
def test_any_number_of_workers_trains_all_documents_to_the_same_bits(data, tmp_path):
    space = with_training(epochs=2, optimizer={"kind": "adam", "learning_rate": {"from": [0.01, 0.1]}})
    alone, others = (
        tune(space, data, tmp_path / f"{workers}", trials=6, rungs=1, workers=workers).trials
        for workers in (1, 3)
    )
    assert len({trial.fingerprint for trial in alone}) == 6
    assert outcomes(others) == outcomes(alone)


def test_ctrl_c_lets_every_worker_save(data, tmp_path, monkeypatch):
    """The first worker gets SIGTERM in its second epoch, as all do after Ctrl-C, and ends with status 130.

    No worker trains an epoch again that has ended before: each has one line in the log.
    """
    be(monkeypatch, DYING.replace("SIGNAL", f"{int(signal.SIGTERM)}"))
    with pytest.raises(KeyboardInterrupt):
        tune(SMALL, data, tmp_path / "study", trials=2, rungs=1, workers=2)
    result = tune(SMALL, data, tmp_path / "study", trials=2, rungs=1, resume=True)
    assert [trial.state for trial in result.trials] == ["finished", "finished"]
    for trial in result.trials:
        lines = (trial.run / "log.jsonl").read_text().splitlines()
        epochs = [json.loads(line)["epoch"] for line in lines if "loss" in json.loads(line)]
        assert epochs == sorted({*epochs})


def test_a_search_whose_workers_are_all_lost_ends(data, tmp_path, monkeypatch):
    be(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    heard = Heard()
    with mistake(GroupError):
        tune(SPACE, data, tmp_path / "study", trials=2, workers=2, report=heard)
    assert len(heard.said) == 2


def test_the_error_of_a_worker_ends_the_search(data, tmp_path, monkeypatch):
    be(monkeypatch, "import sys; from widenet.tuning import worker; from widenet.errors import FitError\n"
       "def fail(*_): raise FitError('does not fit', place='here', option='data')\n"
       "worker.work = fail; sys.exit(worker.main(*sys.argv[1:]))")  # fmt: skip
    with mistake(FitError, place="here", option="data"):
        tune(SPACE, data, tmp_path / "study", trials=2, workers=2)


@pytest.mark.slow
def test_a_search_that_joins_another_loses_no_trial_and_counts_none_twice(data, tmp_path):
    """As from another machine with the same folder: a search in one process begins while workers train."""
    out, heard, joined = tmp_path / "study", Heard(), Heard()
    results = []

    def join(trial):
        if trial == 1 and not results:
            results.append(tune(SMALL, data, out, trials=6, rungs=1, resume=True, report=joined))

    result = tune(SMALL, data, out, trials=6, rungs=1, workers=2, report=Heard(join))
    begun = [*heard.begun, *joined.begun]
    assert len({*begun}) == len(begun)
    assert {trial.state for trial in result.trials} == {"finished"}
    assert len(result.trials) == 6
