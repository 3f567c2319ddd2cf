"""Whatever stands in a file or a command line: every command succeeds, or refuses in one sentence and
leaves all as it was.
"""

import shutil

import pytest

from tests.fuzz import cases, world
from tests.fuzz.forks import Forks

CASES, LONG_CASES, PER_TEST = 100, 2_000, 50
"""Cases that are always run, and those of the long form."""


@pytest.fixture(scope="session")
def forks():
    running = Forks()
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
