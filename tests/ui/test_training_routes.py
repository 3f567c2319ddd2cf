"""The routes that train over HTTP: who may ask, what is refused, and a training that outlives the pages."""

import asyncio
import json
import os
import shutil
import signal
import time
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from starlette.requests import Request

from tests.pages import Page
from tests.serve.conftest import TOKEN
from tests.ui.conftest import pages
from widenet.cli.app import app
from widenet.errors import DocumentError
from widenet.plan.memory import PROGRAM_BYTES
from widenet.plan.numbers import amount
from widenet.spec.network import NetworkSpec
from widenet.training.existing_run import is_locked
from widenet.ui.training_routes import output_of

READ, CHANGE = ["/start", "/schema?document=network"], ["/plan", "/measure", "/start", "/stop", "/resume"]


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """Runs beside which new ones may be started."""
    folder = tmp_path_factory.mktemp("starting") / "runs"
    shutil.copytree(trained / "runs", folder)
    return folder


@pytest.fixture(scope="module")
def open_pages(folder):
    with pages(folder, "--allow-training") as running:
        yield running


@pytest.fixture(scope="module")
def right(trained):
    """A draft that may be started."""
    run = trained / "runs" / "untied"
    texts = {name: (run / f"{name}.json").read_text() for name in ("network", "training")}
    return {"name": "mine", "data": str((trained / "data").resolve()), "processes": 1, **texts}


def test_without_being_allowed_there_are_no_such_routes(shown):
    for place in READ:
        assert shown.get(place).status == 404
    for place in CHANGE:
        assert shown.post(place, {}).status in (404, 405)
    assert "Start a training" not in shown.get("/").body.decode()
    assert "page/training.js" not in shown.get("/run?name=untied").body.decode()


@pytest.mark.parametrize("place", CHANGE)
def test_other_sites_strangers_and_other_bodies_are_refused(place, open_pages, folder):
    before = sorted(folder.rglob("*"))
    kind = {"Content-Type": "application/json"}
    for headers, status in [
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Content-Type": "text/plain"}, 415),
    ]:
        assert open_pages.ask("POST", place, "{}", {**kind, **headers}).status == status
    assert open_pages.ask("POST", place, " " * (2**20 + 1), kind).status == 413
    for body in ("", "[]", "{", "[" * 100_000, '{"run": 1}', '{"run": "../data"}'):
        assert open_pages.ask("POST", place, body, kind).status in (404, 422)
    assert sorted(folder.rglob("*")) == before


def test_with_a_token_nothing_is_told_or_started_without_it(trained, right, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with pages(trained / "runs", "--allow-training", "--token-file", tmp_path / "token") as running:
        assert {running.get(place).status for place in READ} == {401}
        assert {running.post(place, right).status for place in CHANGE} == {401}
        assert running.post("/plan", right, Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"name": "../mine"}, 422),
        ({"name": "untied"}, 409),
        ({"data": "/etc"}, 422),
        ({"data": "runs/../data"}, 422),
        ({"network": "{"}, 422),
        ({"processes": 99}, 422),
    ],
)
def test_a_wrong_draft_starts_nothing(wrong, status, right, open_pages, folder):
    before = sorted(folder.rglob("*"))
    reply = open_pages.post("/start", {**right, **wrong})
    assert reply.status == status
    assert sorted(folder.rglob("*")) == before


def test_runs_that_nobody_trains_are_neither_stopped_nor_resumed(open_pages):
    assert open_pages.post("/stop", {"run": "untied"}).status == 409
    assert open_pages.post("/resume", {"run": "untied"}).status == 409
    assert open_pages.post("/resume", {"run": "nothing"}).status == 404


def test_mistakes_and_the_plan_are_said_in_the_words_of_the_commands(open_pages, right):
    wrong = right["network"].replace('"units"', '"unit"', 1)
    with pytest.raises(DocumentError) as refused:
        NetworkSpec.parse(wrong, "network.json")
    page = Page(open_pages.post("/plan", {**right, "network": wrong}).body.decode())
    assert ("p", {"data-mistake": "network"}) in page.elements
    assert str(refused.value) in page.texts["p"]
    page = Page(open_pages.post("/plan", right).body.decode())
    assert "process 0" in page.texts["text"]
    assert any("A process needs 4" in text and "It fits" in text for text in page.texts["p"])
    assert amount(PROGRAM_BYTES["cpu"]) in page.text


def descendants(pid):
    """The processes below one."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in below] + [each for child in below for each in descendants(int(child))]


def test_one_training_is_measured_at_a_time_and_for_nobody_who_has_left(open_pages, right):
    with closing(HTTPConnection("127.0.0.1", open_pages.port, timeout=60)) as impatient:
        impatient.request("POST", "/measure", json.dumps(right), {"Content-Type": "application/json"})
        until(lambda: descendants(open_pages.process.pid))
        refused = open_pages.post("/measure", right)
    assert (refused.status, "Another training is being measured" in refused.body.decode()) == (409, True)
    until(lambda: not descendants(open_pages.process.pid))
    page = Page(open_pages.post("/measure", right).body.decode())
    assert "Training" in page.texts["pre"][0]


@pytest.mark.parametrize("script", ["sleep 1000 & sleep 1000", "sleep 1000 & exit 0"])
def test_a_command_ends_with_all_its_processes_when_nobody_waits_for_it(script):
    async def receive():
        return {"type": "http.disconnect"}

    async def asked():
        async with asyncio.timeout(20):
            return await output_of(["sh", "-c", script], Request({"type": "http"}, receive))

    before = descendants(os.getpid())
    assert asyncio.run(asked()) == ""
    assert descendants(os.getpid()) == before


@pytest.mark.parametrize(
    "machine", ['{"processes": "many"}', '{"processes": -3}', '{"data": 5}', '{"data": "\\u0000"}', "[]", "{"]
)
def test_what_a_damaged_file_says_of_processes_is_not_believed(machine, open_pages, folder, trained):
    damaged = folder / "damaged"
    shutil.copytree(trained / "runs" / "untied", damaged)
    try:
        shutil.rmtree(damaged / "model")
        (damaged / "machine.json").write_text(machine)
        assert open_pages.post("/resume", {"run": "damaged"}).status == 409
        for place in ("/run?name=damaged", "/start?like=damaged", "/data", "/"):
            assert open_pages.get(place).status == 200, place
    finally:
        shutil.rmtree(damaged)


def test_the_schemas_are_those_that_widenet_prints(open_pages):
    from typer.testing import CliRunner

    for name in ("network", "training"):
        printed = json.loads(CliRunner().invoke(app, ["schema", name]).stdout)
        del printed["$schema"]
        assert json.loads(open_pages.get(f"/schema?document={name}").body) == printed
    assert open_pages.get("/schema?document=other").status == 404


def until(met, seconds=60.0):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def long_runs(trained, tmp_path):
    """A folder for runs; trainings that a test leaves behind are killed."""
    folder = tmp_path / "runs"
    shutil.copytree(trained / "runs" / "untied", folder / "before")
    yield folder
    for note in folder.glob(".*.start/process.json"):
        with suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGKILL)


@pytest.mark.long
def test_a_training_outlives_the_pages_and_the_next_ones_stop_and_resume_it(right, long_runs):
    run, begun = long_runs / "mine", {"run": "mine"}
    long = json.dumps(json.loads(right["training"]) | {"epochs": 100_000})
    with pages(long_runs, "--allow-training") as running:
        assert running.post("/start", {**right, "training": long}).status == 200
        assert "The training begins" in running.get("/run?name=mine").body.decode()
        assert running.post("/start", {**right, "name": "second"}).status == 409
        until(lambda: (run / "log.jsonl").is_file())
        assert running.end()[0] == 0
    assert is_locked(run)
    with pages(long_runs, "--allow-training") as running:
        assert "Stop with a checkpoint" in running.get("/run?name=mine").body.decode()
        assert running.post("/resume", begun).status == 409
        assert running.post("/start", {**right, "name": "second"}).status == 409
        assert running.post("/stop", begun).status == 200
        until(lambda: ">Resume<" in running.get("/run?name=mine").body.decode())
        assert not is_locked(run)
        assert any(run.glob("checkpoints/epoch-*"))
        assert running.post("/resume", begun).status == 200
        until(lambda: "Stop with a checkpoint" in running.get("/run?name=mine").body.decode())
        assert running.post("/stop", begun).status == 200
        until(lambda: ">Resume<" in running.get("/run?name=mine").body.decode())
        printed = (long_runs / ".mine.start" / "output.txt").read_text()
        assert printed.count("Resume with") == 2
        assert "Resuming after epoch" in printed
    assert not (long_runs / "second").exists()
