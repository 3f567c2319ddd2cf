"""A service's beginning and end: a full queue, SIGTERM, nothing lost, and models that follow each other."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.mistakes import mistake
from tests.serve.conftest import STOPPING, TOKEN, service
from widenet.errors import OptionError
from widenet.serve.serve_arguments import ServeArguments
from widenet.serve.service import serve as start


def tokens(folder):
    texts = {
        "good": TOKEN,
        "short": "secret\n",
        "tab": "a-token-of-more\tthan-16-letters",
        "accent": "é" * 20,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"host": "0.0.0.0"}, "host"),
        *(({"token_file": name}, "token_file") for name in ("short", "tab", "accent", "none")),
    ],
)
def test_wrong_options_are_told_before_the_model_is_read(options, option, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokens(tmp_path)
    with mistake(OptionError, option=option):
        start(ServeArguments(world.run("first"), port=0, **options), print)


def test_the_program_that_users_start_answers_and_ends_well(world):
    with service(world.run("first"), program=("-m", "widenet")) as running:
        assert running.recommend(items=["i1"]).status == 200
        assert running.end()[0] == 0


def test_when_the_queue_is_full_others_get_503_at_once_and_sigterm_answers_what_was_accepted(world):
    words = "--max-batch", 1, "--max-delay-ms", 0, "--queue", 2, "--deadline-ms", 60_000
    with service(world.run("first"), *words, script=STOPPING) as running, ThreadPoolExecutor(3) as pool:
        accepted = [pool.submit(running.recommend, items=["i1"])]
        assert running.process.stdout.readline() == "stopped\n"
        accepted += [pool.submit(running.recommend, items=["i2"]) for _ in range(2)]
        while running.measured("widenet_queue_rows") < 2:
            pass
        for _ in range(20):
            reply = running.recommend(items=["i3"])
            assert (reply.status, reply.headers["retry-after"], reply.code) == (503, "1", "busy")
        assert running.get("/health/live").status == 200
        running.process.terminate()
        running.process.stdin.write("go\n" * 3)
        running.process.stdin.flush()
        assert [future.result().status for future in accepted] == [200] * 3
        assert running.process.wait(timeout=60) == 0


def test_a_request_whose_deadline_passes_gets_504_and_a_stuck_model_does_not_hold_up_the_end(world):
    with service(world.run("first"), "--deadline-ms", 200, script=STOPPING) as running:
        assert running.recommend(items=["i1"]).status == 504
        while (ready := running.get("/health/ready")).status == 200:  # it was late before the model had it
            assert running.recommend(items=["i1"]).status == 504
        assert ready.code == "stuck"
        running.process.stdin.write("go\n")
        running.process.stdin.flush()
        while running.get("/health/ready").status == 503:
            pass
        assert running.recommend(items=["i1"]).status == 504
        running.process.terminate()
        assert running.process.wait(timeout=60) == 0


def test_a_run_that_is_deleted_under_the_service_goes_on_answering(world, tmp_path):
    shutil.copytree(world.run("first"), tmp_path / "run")
    with service(tmp_path / "run") as running:
        before = running.recommend(items=["i1"])
        shutil.rmtree(tmp_path / "run")
        while running.measured("widenet_failed_loads_total") < 1:
            pass
        assert running.recommend(items=["i1"]).json == before.json
        assert running.get("/v1/items?search=Title").status == 200
        status, said = running.end()
    assert (status, said.count("\n")) == (0, 1)


def test_nothing_of_a_request_reaches_the_log(world):
    with service(world.run("first")) as running:
        for name in ("", "x\n\x1b[31m"):
            assert running.recommend(items=[name]).status == 422
        assert running.get("/%0a%1b[31m").status == 404
        assert running.end() == (0, "")
