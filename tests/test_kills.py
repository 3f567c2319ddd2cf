"""Trainings whose processes are killed, some of them while a checkpoint is written, and that go on to the
same bits.
"""

import pytest

from benchmarks.kills import disturbed, prepare


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A folder with documents and a dataset, and the fingerprint of the training that one process makes of
    them.
    """
    folder = tmp_path_factory.mktemp("kills")
    return folder, prepare(folder, epochs=12)


@pytest.mark.parametrize(
    ("launcher", "kills", "seed"),
    [
        *(
            pytest.param("widenet train --processes 2", kills, seed, marks=pytest.mark.long)
            for kills, seed in ((1, 12), (2, 25))
        ),
        pytest.param("torchrun --max-restarts 3", 1, 3, marks=pytest.mark.slow),
        pytest.param("widenet train --processes 2 --weights-in disk", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_a_training_of_which_processes_are_killed_ends_with_the_bits_of_an_undisturbed_one(
    launcher, kills, seed, undisturbed
):
    folder, expected = undisturbed
    tally = disturbed(folder, launcher, kills, seed)
    assert (tally.kills, tally.fingerprint) == (kills, expected)
