"""The file of histograms: what is written is read, what is damaged is not, and later epochs are dropped."""

import errno
import json
import os

import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError
from widenet.training import histogram_log
from widenet.training.histogram_log import FILE, Histogram

TASTE = Histogram(2.5, 7, 1, -3, [0, 2], [3, 1])
EMPTY = Histogram(None, 0, 0, -126, [], [])


def line(epoch):
    weights = histogram_log.plain({"taste/items": TASTE, "empty": EMPTY})
    return {"epoch": epoch, "weights": weights, "activations": histogram_log.plain({"taste": TASTE})}


def write(run, *epochs):
    for epoch in epochs:
        histogram_log.append(run, line(epoch))


def test_what_is_written_is_read_by_epoch_group_and_name(tmp_path):
    assert histogram_log.read(tmp_path) == {}
    write(tmp_path, 1, 2)
    groups = {"weights": {"taste/items": TASTE, "empty": EMPTY}, "activations": {"taste": TASTE}}
    assert histogram_log.read(tmp_path) == {1: groups, 2: groups}
    assert histogram_log.norms(groups) == {"norms/weights/taste/items": 2.5, "norms/activations/taste": 2.5}


def test_the_newest_epoch_is_read_alone(tmp_path):
    assert histogram_log.newest(tmp_path, 1) == {}
    write(tmp_path, 1, 2)
    assert histogram_log.newest(tmp_path, 2)["activations"] == {"taste": TASTE}
    assert histogram_log.newest(tmp_path, 1) == {}
    with (tmp_path / FILE).open("a") as file:
        file.write('{"epoch": 2, "wei')
    assert histogram_log.newest(tmp_path, 2) == {}


def test_the_edges_of_all_bins_ascend_around_zero():
    assert TASTE.limits == [-0.5, -0.25, -0.125, 0.125, 0.25, 0.5]


@pytest.mark.parametrize(
    "damage",
    [
        {"norm": "2.5"},
        {"norm": float("nan")},
        {"norm": -1.0},
        {"numbers": 8},
        {"zeros": -1, "numbers": 5},
        {"zeros": 1.0},
        {"zeros": True},
        {"lowest": -127},
        {"lowest": 128},
        {"negative": [2]},
        {"negative": "02"},
        {"positive": [3, 2**63], "numbers": 6 + 2**63},
        {"more": 1},
    ],
    ids=str,
)
def test_a_damaged_histogram_is_none(damage):
    assert Histogram.read(vars(TASTE)) == TASTE
    assert Histogram.read({**vars(TASTE), **damage}) is None


def test_damage_hides_no_more_than_it_must(tmp_path):
    write(tmp_path, 1)
    damaged = line(2)
    damaged["weights"]["taste/items"] = []
    damaged["activations"] = 3
    rest = ['{"epoch": 3, "wei', "[1]", "\xff", '{"epoch": "4"}', '{"epoch": true}', json.dumps(line(5))]
    with (tmp_path / FILE).open("a", encoding="latin-1") as file:
        file.write("\n".join([json.dumps(damaged), *rest]) + "\n")
    found = histogram_log.read(tmp_path)
    assert list(found) == [1, 2, 5]
    assert found[2] == {"weights": {"empty": EMPTY}}


def test_later_epochs_and_damaged_lines_are_dropped(tmp_path):
    histogram_log.rewind(tmp_path, 3)
    assert not (tmp_path / FILE).exists()
    write(tmp_path, 4, 5)
    whole = (tmp_path / FILE).read_text()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"epoch": 6, "wei')
    for epochs, text in ((9, whole), (4, whole.splitlines(keepends=True)[0]), (3, "")):
        histogram_log.rewind(tmp_path, epochs)
        assert (tmp_path / FILE).read_text() == text


def test_a_full_disk_is_one_sentence_and_leaves_the_lines_as_they_were(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path, 1)
    whole = (tmp_path / FILE).read_text()
    monkeypatch.setattr(os, "fsync", full)
    with mistake(CheckpointError, place="histograms.jsonl"):
        histogram_log.rewind(tmp_path, 0)
    assert (tmp_path / FILE).read_text() == whole
