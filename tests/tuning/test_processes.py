"""Workers that are processes: one that is killed loses nothing, and nothing is counted twice."""

import json
import signal

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, Heard, people, with_training
from widenet.errors import GroupError
from widenet.tuning import worker
from widenet.tuning.tune import tune

DYING = """
import os, sys
from pathlib import Path
from widenet.tuning import study, worker

study.BEAT_SECONDS, study.LOST_SECONDS = 1, 3
is_first = not (died := Path(sys.argv[1]) / "died").exists()
died.touch()
train = worker.run_training

def dying(layout, dataset, arguments):
    after = arguments.after_epoch
    def after_epoch(network, epoch):
        if is_first and epoch == 2:
            os.kill(SIGNALLED)
        return after(network, epoch)
    object.__setattr__(arguments, "after_epoch", after_epoch)
    return train(layout, dataset, arguments)

worker.run_training = dying
sys.exit(worker.main(*sys.argv[1:]))
"""
"""The first worker of a study sends a signal in the second epoch of its first trial."""
SMALL = with_training(epochs=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("processes") / "data")


def be(monkeypatch, code):
    """Let workers be another program."""
    monkeypatch.setattr(worker, "_PROGRAM", ("-c", code))


def test_a_killed_worker_loses_no_trial_and_bits_are_those_of_one_worker(data, tmp_path, monkeypatch):
    space = with_training(epochs=3, optimizer={"kind": "adam", "learning_rate": {"from": [0.01, 0.1]}})
    alone = tune(space, data, tmp_path / "alone", trials=6, rungs=1)
    be(monkeypatch, DYING.replace("SIGNALLED", "os.getpid(), 9"))
    heard = Heard()
    result = tune(space, data, tmp_path / "study", trials=6, rungs=1, workers=2, report=heard)
    assert len(heard.said) == 1
    assert [trial.number for trial in result.trials] == list(range(6))
    assert sorted(trial.number for trial in heard.ended) == list(range(6))
    # All six pairs of documents were tried, in whatever order.
    assert sorted(trial.fingerprint for trial in result.trials) == sorted(
        trial.fingerprint for trial in alone.trials
    )


def test_ctrl_c_lets_every_worker_save(data, tmp_path, monkeypatch):
    """No worker trains an epoch again that has ended before: each has one line in the log."""
    be(monkeypatch, DYING.replace("SIGNALLED", f"os.getppid(), {int(signal.SIGINT)}"))
    with pytest.raises(KeyboardInterrupt):
        tune(SMALL, data, tmp_path / "study", trials=2, rungs=1, workers=2)
    result = tune(SMALL, data, tmp_path / "study", trials=2, rungs=1, resume=True)
    assert [trial.state for trial in result.trials] == ["finished", "finished"]
    for trial in result.trials:
        lines = [json.loads(line) for line in (trial.run / "log.jsonl").read_text().splitlines()]
        epochs = [line["epoch"] for line in lines if "loss" in line]
        assert epochs == sorted({*epochs})


def test_a_search_whose_workers_are_all_lost_ends(data, tmp_path, monkeypatch):
    be(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with mistake(GroupError, option="workers"):
        tune(SPACE, data, tmp_path / "study", trials=2, workers=2)
