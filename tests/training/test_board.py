"""The board: TensorBoard reads what was logged, and a training does without it where it cannot be written."""

import resource

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from widenet.training.loop import Board


def no_word(text):
    raise AssertionError(text)


def scalars(folder):
    """What TensorBoard reads in a folder: name, then (epoch, value)."""
    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]
    }


def written(folder, epoch, *losses, say=no_word):
    board = Board(folder, epoch, say)
    for number, loss in enumerate(losses):
        board.add({"epoch": epoch + number, "loss": loss, "arithmetic": 3})


def test_tensorboard_reads_every_number_by_epoch_and_drops_those_that_were_trained_again(tmp_path):
    folder = tmp_path / "tensorboard"
    written(folder, 1, 0.5, 0.25, 8.0)
    assert scalars(folder) == {
        "loss": [(1, 0.5), (2, 0.25), (3, 8.0)],
        "arithmetic": [(1, 3.0), (2, 3.0), (3, 3.0)],
    }
    written(folder, 3, 0.125)
    assert scalars(folder)["loss"] == [(1, 0.5), (2, 0.25), (3, 0.125)]


@pytest.mark.parametrize("limit", [0, 40, 200])
def test_a_file_that_cannot_grow_is_told_once_and_nothing_more_is_written(limit, tmp_path):
    said = []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        written(tmp_path / "tensorboard", 1, *[0.5] * 9, say=said.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert said == [
        f"{tmp_path / 'tensorboard'} cannot be written: File too large."
        " The training continues without TensorBoard."
    ]
    assert sum(path.stat().st_size for path in (tmp_path / "tensorboard").iterdir()) <= limit
