"""Processes that train: which one it is, one signal alone, and names that stay in the folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widenet.cli.ui import train_command
from widenet.serve.messages import RefusedError
from widenet.ui.trainings import OUTPUT_BYTES, Trainings


@pytest.fixture
def sleeper(tmp_path):
    """A process that pages seem to have started for the run "mine"; it says when it is asked to end."""
    code = (
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    (tmp_path / ".mine.start").mkdir()
    note = {"pid": process.pid, "began": fields[19]}
    (tmp_path / ".mine.start" / "process.json").write_text(json.dumps(note))
    yield process
    process.kill()
    process.communicate()


def test_a_training_of_pages_before_is_known_and_asked_once(sleeper, tmp_path):
    trainings, path = Trainings(tmp_path, train_command), tmp_path / "mine"
    assert trainings.is_alive(path)
    assert not trainings.is_stopping(path)
    trainings.stop(path)
    assert sleeper.stdout.readline() == "asked\n"
    assert trainings.is_stopping(path)
    with pytest.raises(RefusedError, match="already"):
        trainings.stop(path)
    with pytest.raises(RefusedError, match="mine is being trained"):
        trainings.start("other", tmp_path, {}, 1, None)
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert not trainings.is_alive(path)


PRINTING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
print(sys.argv[1:], os.getsid(0) == os.getpid(), sys.stdin.read() == "", flush=True)
while True: time.sleep(60)
"""


def until(met):
    end = time.monotonic() + 20
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_training_is_a_process_with_its_own_session_documents_and_output(tmp_path):
    def command(*arguments):
        return [sys.executable, "-c", PRINTING, *train_command(*arguments)[3:]]

    trainings = Trainings(tmp_path, command)
    path, beside, data = tmp_path / "mine", tmp_path / ".mine.start", tmp_path / "data; rm -r $HOME"
    texts = {"network.json": "{}", "training.json": "[] \u00e4"}
    trainings.start("mine", data, texts, 3, None)
    until(lambda: "\n" in trainings.output(path))
    where = ["--data", str(data), "--out", str(path), "--processes", "3"]
    words = ["train", str(beside / "network.json"), str(beside / "training.json"), *where]
    assert trainings.output(path) == f"{words} True True\n"
    assert {name: (beside / name).read_text("utf-8") for name in texts} == texts
    later = Trainings(tmp_path, train_command)  # of the next pages
    assert later.is_alive(path)
    assert later.documents("mine") == beside
    trainings.stop(path)
    until(lambda: not trainings.is_alive(path))
    assert not later.is_alive(path)
    trainings.resume(path, data, 3, None)
    until(lambda: trainings.output(path).count("\n") == 2)
    assert trainings.output(path).splitlines()[1] == f"{['train', *where, '--resume']} True True"
    with pytest.raises(RefusedError, match="mine is being trained"):
        later.resume(tmp_path / "other", data, 1, None)
    later.stop(path)
    until(lambda: not trainings.is_alive(path))


@pytest.mark.parametrize("note", ["", "[]", '{"pid": 1}', '{"pid": "x", "began": "1"}', None])
def test_another_process_with_the_same_id_is_left_alone(note, tmp_path):
    (tmp_path / ".mine.start").mkdir()
    own = json.dumps({"pid": os.getpid(), "began": "1"})
    (tmp_path / ".mine.start" / "process.json").write_text(own if note is None else note)
    trainings = Trainings(tmp_path, train_command)
    assert not trainings.is_alive(tmp_path / "mine")
    with pytest.raises(RefusedError, match="no training of this run"):
        trainings.stop(tmp_path / "mine")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "/etc", ".hidden", "-a", "a\n", "a b", "a\0", "\u00e4", "a" * 101]
)
def test_a_name_is_a_single_plain_component(name, tmp_path):
    trainings = Trainings(tmp_path, train_command)
    with pytest.raises(RefusedError, match="the name must be"):
        trainings.start(name, tmp_path, {"network.json": ""}, 1, None)
    assert trainings.documents(name) is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_a_link_are_not_replaced_and_a_busy_folder_starts_nothing(tmp_path):
    trainings = Trainings(tmp_path, train_command)
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "link"):
        with pytest.raises(RefusedError, match="already"):
            trainings.start(name, tmp_path, {"network.json": ""}, 1, None)
    with pytest.raises(RefusedError, match="deep/run is being trained"):
        trainings.start("free", tmp_path, {"network.json": ""}, 1, "deep/run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "taken"]


def test_what_is_kept_of_a_training_goes_with_its_run_but_not_before_there_is_one(sleeper, tmp_path):
    trainings, path, beside = Trainings(tmp_path, train_command), tmp_path / "mine", tmp_path / ".mine.start"
    trainings.clear_deleted()  # it has made no run yet
    path.mkdir()
    trainings.clear_deleted()
    path.rmdir()
    trainings.clear_deleted()  # its process is alive
    assert beside.is_dir()
    sleeper.kill()
    sleeper.wait()
    trainings.clear_deleted()
    assert not beside.exists()
    assert trainings.output(path) is None


def test_a_training_that_ended_without_a_run_keeps_its_documents(tmp_path):
    trainings = Trainings(tmp_path, lambda *_: [sys.executable, "-c", "print('no')"])
    path, beside = tmp_path / "mine", tmp_path / ".mine.start"
    beside.mkdir()
    (beside / "seen").touch()  # an earlier run of this name, which was deleted
    trainings.start("mine", tmp_path, {"network.json": "{}"}, 1, None)
    until(lambda: not trainings.is_alive(path))
    trainings.clear_deleted()
    assert trainings.documents("mine") == beside
    assert trainings.output(path) == "no\n"


def test_the_end_of_a_long_output_is_shown(tmp_path):
    trainings, path = Trainings(tmp_path, train_command), tmp_path / "mine"
    assert trainings.output(path) is None
    (tmp_path / ".mine.start").mkdir()
    (tmp_path / ".mine.start" / "output.txt").write_bytes(b"\xff" + b"x" * OUTPUT_BYTES + b"end")
    assert trainings.output(path).endswith("xend")
    assert len(trainings.output(path)) == OUTPUT_BYTES
