"""Whatever stands in a file or a command line: every command succeeds, or refuses in one sentence and
leaves all as it was.
"""

import shutil

import pytest

from tests.fuzz import cases, world
from tests.fuzz.forks import Forks

CASES, LONG_CASES, PER_TEST, PER_PROCESS = 100, 2_000, 50, 25
"""Cases that are always run, and those of the long form."""


@pytest.fixture(scope="session")
def forks():
    running = Forks(PER_PROCESS)
    yield running
    running.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory, forks):
    folder = tmp_path_factory.mktemp("world")
    world.make(folder, forks)
    return folder


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.long] if first >= CASES else [])
        for first in range(0, LONG_CASES, PER_TEST)
    ],
)
def test_a_command_over_changed_files_or_words_succeeds_or_refuses(first, whole, forks, tmp_path):
    wrong = {}
    for number in range(first, first + PER_TEST):
        case, ended, rules = cases.outcome(number, whole, tmp_path / f"case-{number}", forks)
        if rules:
            wrong[number] = (" ".join(case.words), rules, ended.err[-500:])
        shutil.rmtree(tmp_path / f"case-{number}")
    assert wrong == {}, "`python -m benchmarks fuzz --case NUMBER` runs one again"


def test_the_fuzzer_notices_what_it_looks_for(tmp_path):
    (tmp_path / "half.csv").write_text("")
    refused = cases.Case("guard", ["data", "ingest"], {})
    told = "Traceback (most recent call last):\nKeyError: 3"
    ends = {
        "hang": cases.Ended(-9, "", "", 99.0, 1.0, hung=True),
        "crash": cases.Ended(-11, "", "", 1.0, 1.0, hung=False),
        "slow": cases.Ended(0, "", "", 99.0, 21.0, hung=False),
        "traceback": cases.Ended(1, "", told, 1.0, 1.0, hung=False),
        "half-written": cases.Ended(2, "", "widenet: no.", 1.0, 1.0, hung=False),
        "fine": cases.Ended(0, "", "", 1.0, 1.0, hung=False),
    }
    assert {name: list(cases.broken_rules(refused, ended, {}, tmp_path)) for name, ended in ends.items()} == {
        "hang": ["it hangs"],
        "crash": ["signal 11"],
        "slow": ["it takes 21 seconds of the processor"],
        "traceback": ["'Traceback (most recent call last)' on standard error", "status 1"],
        "half-written": ["refused, and yet changed: ['half.csv']"],
        "fine": [],
    }
