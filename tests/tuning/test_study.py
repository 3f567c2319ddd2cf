"""Studies: which trial a worker takes, who has it, and what a killed worker leaves."""

import json

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, people
from widenet.errors import CheckpointError
from widenet.tuning.journal import FILE_NAME
from widenet.tuning.study import Facts, Study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("study") / "data")


@pytest.fixture
def begun(tmp_path, data):
    return Study.begin(tmp_path / "study", Facts(SPACE, data.digest, [1, 3, 9], 3, 0, "cpu"))


def taken(study, data, num_trials=4):
    with study.journal.alone():
        return study.next_trial(num_trials, data)


def reached(study, trial, epochs, value, claim=None):
    with study.journal.alone():
        study.reach(trial, epochs, value, "f" * 64 if epochs == 9 else None)
        if claim is not None:
            claim.close()


def test_no_two_workers_have_the_same_trial(begun, data):
    other = Study.open(begun.path)
    workers = [begun, other, begun, other]
    numbers = [taken(worker, data) for worker in workers]
    assert [trial.number for trial, _ in numbers] == [0, 1, 2, 3]
    assert taken(other, data) is None
    with other.journal.alone():
        assert not other.is_over()
    for _, claim in numbers:
        claim.close()


def test_a_trial_that_a_lost_worker_had_comes_first(begun, data):
    (first, claim), (_, kept) = taken(begun, data), taken(begun, data)
    claim.close()  # as the system does when the worker is killed
    again, claim = taken(Study.open(begun.path), data)
    assert (again.number, again.choices) == (first.number, first.choices)
    claim.close()
    kept.close()


def test_a_trial_that_has_cost_three_workers_has_failed(begun, data):
    for _ in range(3):
        trial, claim = taken(begun, data, 1)
        assert trial.number == 0
        claim.close()
    assert taken(begun, data, 1) is None
    with begun.journal.alone():
        assert begun.journal.trials()[0].problem == "3 workers ended while they trained it."
        assert begun.is_over()


def test_a_study_goes_through_its_rungs_and_ends(begun, data):
    """The second of three is promoted at once, before the fourth begins. When all wait, a better fourth goes
    on, too, and then the best of the second rung, although it has only two trials.
    """
    values = {(0, 0): 0.1, (1, 0): 0.4, (2, 0): 0.2, (1, 1): 0.5, (3, 0): 0.45, (3, 1): 0.6, (3, 2): 0.7}
    stops = []
    while (task := taken(begun, data)) is not None:
        trial, claim = task
        stops.append((trial.number, trial.target))
        reached(begun, trial, begun.rungs.epochs[trial.target], values[stops[-1]], claim)
    assert stops == list(values)
    with begun.journal.alone():
        trials = begun.journal.trials()
        assert begun.is_over()
    assert begun.rungs.best(trials).number == 3
    assert [trial.spent for trial in trials] == [
        {"1": 1},
        {"1": 2, "3": 5},
        {"1": 3},
        {"1": 6, "3": 8, "9": 14},
    ]


def test_a_line_that_was_cut_short_is_removed_and_nothing_else(begun, data):
    trial, claim = taken(begun, data)
    reached(begun, trial, 1, 0.25, claim)
    journal = begun.path / FILE_NAME
    whole = journal.read_bytes()
    with journal.open("ab") as file:
        file.write(b'{"op_code":8,"worker_id":"')
    other = Study.open(begun.path)
    with other.journal.alone():
        assert [each.reached for each in other.journal.trials()] == [{1: 0.25}]
    assert journal.read_bytes() == whole
    again, claim = taken(begun, data)
    claim.close()
    assert again.number == 1


@pytest.mark.parametrize(
    "damaged",
    [
        lambda whole: f"{whole}nonsense\n",
        lambda whole: f'{whole}{{"op_code": 4}}\n',
        lambda whole: f"{whole}[3]\n",
        lambda _: "",
        lambda _: None,
    ],
)
def test_a_damaged_or_missing_journal_is_refused(damaged, begun):
    journal = begun.path / FILE_NAME
    text = damaged(journal.read_text())
    journal.unlink() if text is None else journal.write_text(text)
    with mistake(CheckpointError, place="optuna.journal"), Study.open(begun.path).journal.alone():
        pass


def test_a_damaged_or_missing_study_is_refused(begun, tmp_path):
    with mistake(CheckpointError):
        Study.open(tmp_path)
    with mistake(CheckpointError, option="resume"):
        Study.open(tmp_path / "new")
    path = begun.path / "study.json"
    path.write_text(json.dumps({"space": 3}))
    with mistake(CheckpointError, place="study.json"):
        Study.open(begun.path)
    with mistake(CheckpointError, option="resume"):
        Study.begin(begun.path, begun.facts)
