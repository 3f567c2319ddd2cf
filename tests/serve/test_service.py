"""A service's beginning and end: mistakes before the model is read, a full queue, SIGTERM, nothing lost."""

import configparser
import json
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest
import typer

from tests.scripts import Script
from tests.serve.conftest import TOKEN, service, with_model
from widenet.cli.serve import serve
from widenet.errors import OptionError
from widenet.serve.arguments import ServeArguments
from widenet.serve.guard import read_token

EXAMPLES = Path(__file__).parents[2] / "examples" / "serve"
DYING = Path(__file__).with_name("dying.py").read_text()
STOPPING = with_model("stopping_model.py")


@pytest.fixture
def refused(tmp_path_factory):
    """Gives what a service says that does not begin."""

    def said(*words, command="serve"):
        folder = tmp_path_factory.mktemp("said") / "said"
        script = Script("from widenet.cli import main; main()", folder, words=[command, *map(str, words)])
        out, err = script.communicate(120)
        assert (script.returncode, out) == (2, "")
        assert err.count("\n") == 1
        return err

    return said


@pytest.mark.parametrize("command", ["serve", "ui"])
def test_a_port_in_use_is_told(command, world, refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(world.run("first"), "--port", port, command=command)
    assert said.startswith(f"widenet: port {port} of 127.0.0.1 is in use. End the other program, or choose")


def test_pages_on_other_addresses_need_a_token(world, refused):
    said = refused(world.folder, "--host", "0.0.0.0", command="ui")
    assert said.startswith("widenet: --host 0.0.0.0 lets other machines ask: it needs --token-file.")


def test_other_addresses_need_a_token_and_a_token_letters(world, refused, tmp_path):
    run = world.run("first")
    assert "`--host` 0.0.0.0" in refused(run, "--host", "0.0.0.0").replace("--host 0", "`--host` 0")
    (tmp_path / "short").write_text("secret\n")
    assert "at least 16 ASCII characters" in refused(
        run, "--host", "0.0.0.0", "--token-file", tmp_path / "short"
    )
    for text in ("a-token-of-more\tthan-16-letters", "a-token-of-more\nthan-16-letters", "é" * 20):
        (tmp_path / "odd").write_text(text)
        with pytest.raises(OptionError, match="ASCII characters without blanks"):
            read_token(tmp_path / "odd")
    assert "cannot be read" in refused(run, "--host", "0.0.0.0", "--token-file", tmp_path / "none")
    assert "only requests with a token may load runs" in refused(run, "--runs", world.folder)


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "1e9"])
@pytest.mark.parametrize("name", ["deadline_ms", "max_delay_ms"])
def test_times_have_bounds(name, text, world):
    with pytest.raises(OptionError, match="must be"):
        ServeArguments(world.run("first"), **{name: float(text)})


def test_the_program_that_users_start_answers_and_ends_well(world):
    with service(world.run("first"), program=("-m", "widenet")) as running:
        assert running.recommend(items=["i1"]).status == 200
        assert running.end()[0] == 0


def test_a_service_whose_model_dies_ends_with_an_error(world):
    with service(world.run("first"), script=DYING) as running:
        _, said = running.process.communicate(timeout=60)
    assert running.process.returncode == 1
    assert "the thread of the model died: OverflowError" in said
    assert said.endswith("widenet: the service ended because the thread of its model died.\n")


def test_requests_do_not_wait_for_a_walk_through_all_that_was_imported(world):
    program = (str(Path(__file__).with_name("walking.py")),)
    with service(world.run("first"), program=program) as running:
        assert running.recommend(items=["i1"]).status == 200
        _, said = running.end()
    model, own = map(int, re.findall(r"walks through (\d+)", said))
    assert max(model, own) < 20_000, (model, own)


def test_what_is_no_run_or_has_no_weights_yet_is_told(world, refused, tmp_path):
    assert "does not exist" in refused(tmp_path / "none")
    assert "is not a run" in refused(world.data)
    beginning = tmp_path / "beginning"
    beginning.mkdir()
    for name in ("network.json", "training.json", "fields.json"):
        (beginning / name).write_bytes((world.run("first") / name).read_bytes())
    assert "holds no weights yet" in refused(beginning, "--port", 0)


def assert_turned_away_unread(port):
    """A request gets 503 before its body is sent, and the connection takes others after it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        answers = connection.makefile("rb")
        for _ in range(2):
            connection.sendall(
                b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n"
            )
            assert answers.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
            headers = dict(line.rstrip().split(b": ") for line in iter(answers.readline, b"\r\n"))
            assert headers[b"retry-after"] == b"1"
            assert json.loads(answers.read(int(headers[b"content-length"])))["error"]["code"] == "busy"
            connection.sendall(b"no JSON")
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answers.readline() == b"HTTP/1.1 200 OK\r\n"


def test_when_the_queue_is_full_others_get_503_at_once_and_sigterm_answers_what_was_accepted(world):
    words = "--max-batch", 1, "--max-delay-ms", 0, "--queue", 2, "--deadline-ms", 60_000
    with (
        service(world.run("first"), *words, script=STOPPING) as running,
        ThreadPoolExecutor(3) as pool,
    ):
        accepted = [pool.submit(running.recommend, items=["i1"])]
        assert running.process.stdout.readline() == "stopped\n"
        accepted += [pool.submit(running.recommend, items=["i2"]) for _ in range(2)]
        while running.measured("widenet_queue_rows") < 2:
            pass
        for _ in range(20):
            reply = running.recommend(items=["i3"])
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert reply.json["error"]["code"] == "busy"
        assert_turned_away_unread(running.port)
        assert running.get("/health/live").status == 200
        running.process.terminate()
        running.process.stdin.write("go\n" * 3)
        running.process.stdin.flush()
        assert [future.result().status for future in accepted] == [200] * 3
        assert running.process.wait(timeout=60) == 0


def test_searches_and_loads_have_bounds_and_hold_up_neither_answers_nor_the_end(world, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    given = {"Authorization": f"Bearer {TOKEN}"}
    words = "--token-file", tmp_path / "token", "--runs", world.folder / "runs", "--deadline-ms", 60_000
    script = with_model("stuck_model.py")
    with service(world.run("first"), *words, script=script) as running, ThreadPoolExecutor(40) as pool:

        def ask(path, body):
            return running.post(path, body, **given)

        searches = [pool.submit(running.get, "/v1/items?search=Title", **given) for _ in range(20)]
        refused = [future.result() for _, future in zip(range(4), as_completed(searches), strict=False)]
        assert [reply.status for reply in refused] == [503] * 4
        load = pool.submit(ask, "/v1/admin/load", {"run": "second"})
        assert running.process.stdout.readline() == "loading\n"
        assert ask("/v1/admin/load", {"run": "first"}).status == 503
        assert ask("/v1/recommend", {"items": ["i1"]}).status == 200
        running.process.stdin.write("go\n" * 16)
        running.process.stdin.flush()
        assert sorted(future.result().status for future in searches) == [200] * 16 + [503] * 4
        assert running.end() == (0, "")
        assert load.result().status == 503


def test_a_request_whose_deadline_passes_gets_504(world):
    with service(world.run("first"), "--deadline-ms", 50, script=STOPPING) as running:
        assert running.recommend(items=["i1"]).status == 504
        running.process.stdin.write("go\n" * 2)
        running.process.stdin.flush()
        while running.get("/health/ready").status == 503:
            pass
        assert running.get("/health/ready").status == 200


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
    assert status == 0
    assert said.count("the model that answers stays") == 1


def test_the_examples_start_a_service_with_options_that_it_has():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string((EXAMPLES / "widenet.service").read_text())
    assert set(unit) == {"DEFAULT", "Unit", "Service", "Install"}
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    program, *of_unit = unit["Service"]["ExecStart"].split()
    assert Path(program).name == "widenet"
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in lines} <= {
        *("FROM", "ARG", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")
    }
    program, *of_image = [word for kind in ("ENTRYPOINT", "CMD") for word in json.loads(dict(lines)[kind])]
    assert program == "widenet"
    for name, *words in (of_unit, of_image):
        assert name == "serve"
        app = typer.Typer()
        app.command()(serve)
        context = typer.main.get_command(app).make_context("serve", [*words])
        assert context.params["run"] == Path(words[0])


@pytest.mark.parametrize("name", ["", "x\n[31m"])
def test_nothing_of_a_request_reaches_the_log(name, world):
    with service(world.run("first")) as running:
        assert running.recommend(items=[name]).status == 422
        assert running.get("/%0a%1b[31m").status == 404
        assert running.end() == (0, "")
