"""The process of a model: its faults, its end, and who ends it."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.conftest import service, with_model
from widenet.errors import CheckpointError
from widenet.serve import remote
from widenet.serve.arguments import ServeArguments
from widenet.serve.remote import ModelProcess
from widenet.serve.service import serve


def model_of(running):
    """The number of the process of a service's model."""
    number = running.process.pid
    (model,) = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    return int(model)


def test_a_row_that_fails_gets_500_those_beside_it_answers_and_the_end_of_the_process_ends_the_service(world):
    words = "--max-delay-ms", 1000, "--max-batch", 2, "--deadline-ms", 60_000
    script = with_model("overflowing_model.py")
    with service(world.run("first"), *words, script=script) as running, ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda item: running.recommend(items=[item]), ["i7", "i8"] * 8))
        assert [reply.status for reply in replies] == [500, 200] * 8
        assert running.recommend(items=["i13"]).status == 500
        _, said = running.process.communicate(timeout=60)
    assert running.process.returncode == 1
    assert "the model failed: OverflowError" in said
    assert "SECRET" not in said
    assert said.count("a batch failed") == 8  # none for the end of the process
    assert said.endswith("widenet: the service ended because the process of its model died: SIGKILL.\n")


def test_a_signal_to_end_that_reaches_both_processes_loses_no_answer(world):
    words = "--max-batch", 1, "--max-delay-ms", 0, "--deadline-ms", 60_000
    script = with_model("stopping_model.py")
    with service(world.run("first"), *words, script=script) as running, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(running.recommend, items=["i1"])
        assert running.process.stdout.readline() == "stopped\n"
        os.kill(model_of(running), signal.SIGTERM)
        running.process.terminate()
        running.process.stdin.write("go\n")
        running.process.stdin.flush()
        assert accepted.result().status == 200
        assert running.process.wait(timeout=60) == 0


def test_a_model_that_is_stuck_is_not_ready_and_does_not_hold_up_the_end(world):
    with service(world.run("first"), "--deadline-ms", 200) as running:
        os.kill(model_of(running), signal.SIGSTOP)
        assert [running.recommend(items=["i1"]).status for _ in range(2)] == [504, 504]
        reply = running.get("/health/ready")
        assert (reply.status, reply.json["error"]["code"]) == (503, "stuck")
        running.process.terminate()
        assert running.process.wait(timeout=60) == 0


def test_a_mistake_is_raised_here_and_a_fault_or_the_end_of_a_channel_ends_the_process(world, capfd):
    with ModelProcess(world.data, "cpu", None) as process, ModelProcess(None, "cpu", None) as other:
        for end in other._ends:  # as if the service had been killed
            end.close()
        with pytest.raises(CheckpointError, match="does not exist"):
            process.load(world.folder / "none")
        assert not process.has_died
        assert process.load(world.run("first")).about.run == "first"
        process.searches.send(b"no call")
        assert process._process.wait(60) == 1
        assert "the process of the model failed: DecodeError" in capfd.readouterr().err
        assert other._process.wait(60) == 0


def test_a_process_ends_after_the_block(monkeypatch):
    monkeypatch.setattr(remote, "PROGRAM", ["-c", "while True: pass"])
    with ModelProcess(None, "cpu", None) as process:
        assert not process.has_died
    assert process.has_died


def test_a_process_that_dies_before_it_has_a_model_is_told_in_a_sentence(world, monkeypatch):
    monkeypatch.setattr(remote, "PROGRAM", ["-c", "pass"])
    arguments = ServeArguments(world.run("first"), port=0)
    with pytest.raises(SystemExit, match="first: its model cannot be loaded: the process"):
        serve(arguments, print, print)


def test_the_service_itself_loads_no_torch():
    code = "import sys, widenet.serve.service; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
