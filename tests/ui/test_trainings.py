"""Trainings that pages start and stop: who may ask, what is refused, which process it is, and the pages."""

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.browser import check_accessible, expect, needs_chromium, visit
from tests.mistakes import mistake
from tests.serve.conftest import TOKEN
from tests.trainings import UNTIED, books
from tests.ui.conftest import pages
from widenet.cli.services import train_command
from widenet.serve.requests import RefusedError
from widenet.training.run_path import is_locked
from widenet.ui.known_runs import KnownRuns
from widenet.ui.training_routes import TrainingRoutes
from widenet.ui.trainings import Trainings

CHANGE = ["/start", "/stop"]


def kill(folder):
    """End the trainings of a folder: their command lines name it."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"{folder}/".encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """Runs beside which new ones may be started; trainings that a test leaves behind are killed."""
    folder = tmp_path_factory.mktemp("starting") / "runs"
    shutil.copytree(trained / "runs", folder)
    books(folder.parent / "data" / "songs", field="songs")
    yield folder
    kill(folder)


@pytest.fixture(scope="module")
def open_pages(folder):
    with pages(folder, "--allow-training", "--datasets", folder.parent / "data") as running:
        yield running


@pytest.fixture(scope="module")
def right(trained):
    """What starts a training."""
    run = trained / "runs" / "untied"
    texts = {name: (run / f"{name}.json").read_text() for name in ("network", "training")}
    return {"name": "mine", "data": str((trained / "data").resolve()), **texts}


def until(met, seconds=60.0):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_without_being_allowed_there_are_no_such_routes(shown):
    assert shown.get("/start").status == 404
    assert {shown.post(place, {}).status for place in CHANGE} == {404}
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
        assert running.get("/start").status == 401
        assert {running.post(place, right).status for place in CHANGE} == {401}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"name": "../mine"}, 422),
        ({"name": "untied"}, 409),
        ({"name": 1}, 422),
        ({"data": "/etc"}, 422),
        ({"data": "runs/../data"}, 422),
        ({"network": "{"}, 422),
        ({"network": json.dumps(UNTIED).replace('"items"', '"films"')}, 422),
        ({"network": {}}, 422),
        ({"training": '{"epochs": "ten"}'}, 422),
        ({"training": "[" * 100_000}, 422),
        ({"processes": 1}, 422),
    ],
)
def test_a_wrong_draft_starts_nothing(wrong, status, right, open_pages, folder):
    before = sorted(folder.rglob("*"))
    assert open_pages.post("/start", {**right, **wrong}).status == status
    assert sorted(folder.rglob("*")) == before
    assert open_pages.post("/stop", {"run": "untied"}).status == 409


def test_the_datasets_of_runs_and_those_of_a_folder_are_offered(trained, tmp_path):
    known = KnownRuns(trained / "runs").look()

    def choices(place):
        return TrainingRoutes(None, None, None, place).choices(known)

    own = {str((trained / "data").resolve()): "data"}
    assert choices(None) == own
    for place in (["books"], ["by", "year"], ["far", "too", "deep"]):
        shutil.copytree(trained / "data", tmp_path.joinpath("all", *place))
    found = choices(tmp_path / "all")
    assert list(found.values()) == ["data", "books", "year"]


@pytest.mark.long
def test_a_training_outlives_the_pages_and_the_next_ones_start_no_other(right, trained, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(trained / "runs" / "untied", folder / "before")
    run = folder / "mine"
    long = json.dumps(json.loads(right["training"]) | {"epochs": 100_000})
    with pages(folder, "--allow-training") as running:
        assert running.post("/start", {**right, "training": long}).status == 200
        assert "The training begins" in running.get("/run?name=mine").body.decode()
        assert running.post("/start", {**right, "name": "second"}).status == 409
        until(lambda: (run / "log.jsonl").is_file())
        assert running.end()[0] == 0
    assert is_locked(run)
    with pages(folder, "--allow-training") as running:
        assert running.post("/start", {**right, "name": "second"}).status == 409
        assert running.post("/stop", {"run": "mine"}).status == 409
    kill(folder)


PRINTING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
print(sys.argv[1:], os.getsid(0) == os.getpid(), sys.stdin.read() == "", flush=True)
while True: time.sleep(60)
"""


def test_a_training_is_a_process_with_its_own_session_documents_and_output(tmp_path):
    def command(*arguments):
        return [sys.executable, "-c", PRINTING, *train_command(*arguments)[3:]]

    trainings = Trainings(tmp_path, command)
    path, beside, data = tmp_path / "mine", tmp_path / ".mine.start", tmp_path / "data; rm -r $HOME"
    texts = {"network.json": "{}", "training.json": "[] \u00e4"}
    trainings.start("mine", data, texts, None)
    until(lambda: "\n" in trainings.output(path))
    words = ["train", str(beside / "network.json"), str(beside / "training.json")]
    words += ["--data", str(data), "--out", str(path)]
    assert trainings.output(path) == f"{words} True True\n"
    assert {name: (beside / name).read_text("utf-8") for name in texts} == texts
    assert trainings.has_started("mine")
    with mistake(RefusedError):
        trainings.start("other", data, texts, None)
    trainings.stop(path)
    until(lambda: not trainings.is_alive(path))
    with mistake(RefusedError):
        trainings.stop(path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "/etc", ".hidden", "-a", "a\n", "a b", "a\0", "\u00e4", "a" * 101]
)
def test_a_name_is_a_single_plain_component(name, tmp_path):
    trainings = Trainings(tmp_path, train_command)
    with mistake(RefusedError):
        trainings.start(name, tmp_path, {"network.json": ""}, None)
    assert not trainings.has_started(name)
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_a_link_are_not_replaced_and_a_busy_folder_starts_nothing(tmp_path):
    trainings = Trainings(tmp_path, train_command)
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, busy in (("taken", None), ("link", None), ("free", "deep/run")):
        with mistake(RefusedError):
            trainings.start(name, tmp_path, {"network.json": ""}, busy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "taken"]


@needs_chromium
def test_a_training_is_written_started_watched_and_stopped(chromium, open_pages):
    with visit(
        chromium,
        f"http://127.0.0.1:{open_pages.port}/start",
        390,
        expected=["status of 409", "status of 422"],
    ) as page:
        songs = page.get_by_label("Dataset").locator("option", has_text="songs").get_attribute("value")
        page.get_by_label("Dataset").select_option(songs)
        network = page.get_by_label("network.json", exact=True)
        expect(network).to_contain_text('"field": "songs"')
        network.fill(json.dumps(UNTIED).replace('"items"', '"songs"'))
        page.get_by_label("training.json", exact=True).fill('{"epoch": 90000}')
        page.get_by_label("Name of the run").fill("untied")
        page.get_by_role("button", name="Start the training").click()
        expect(page.get_by_role("alert")).to_contain_text("epochs")
        page.get_by_label("training.json", exact=True).fill('{"epochs": 90000}')
        page.get_by_role("button", name="Start the training").click()
        expect(page.get_by_role("alert")).to_contain_text("untied")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)
        page.get_by_label("Name of the run").fill("mine")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").first).to_have_text("The training begins.")
        page.get_by_role("button", name="Stop with a checkpoint").click(timeout=60_000)
        expect(page.get_by_role("status").first).to_contain_text("interrupted: epoch", timeout=60_000)
        check_accessible(page)
