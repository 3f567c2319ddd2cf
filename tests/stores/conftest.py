"""The stores of these tests: S3's server for all of them, and the others for what each kind must pass."""

import os
import subprocess
import sys
import warnings

import pytest

from tests.stores.servers import S3


@pytest.fixture(scope="session")
def servers():
    """The running servers, by their kind."""
    running = {}
    yield running
    for server in running.values():
        server.stop()


@pytest.fixture
def store(request, servers, tmp_path, monkeypatch):
    """A server with an empty bucket, an empty cache, and their variables; S3's if a test names none."""
    kind = getattr(request, "param", S3)
    if reason := kind.lacks():
        pytest.skip(reason)
    if kind not in servers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries' own code
            servers[kind] = kind()
    server = servers[kind]
    server.count_from_here()
    monkeypatch.setattr(server, "hold", lambda _: None)
    server.empty()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    return server


@pytest.fixture
def widenet_command(store, tmp_path):
    """Runs a command line in a process of its own; returns its status and what it printed."""

    def run(*words, started=None, **variables):
        with subprocess.Popen(
            [sys.executable, "-m", "widenet", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        ) as process:
            if started is not None:
                started(process)
            text, _ = process.communicate()
        assert [secret for secret in store.secrets if secret in text] == []
        return process.returncode, text

    return run
