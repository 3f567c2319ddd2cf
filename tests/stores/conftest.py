"""One S3 server, moto's, for all tests of this folder; it counts requests, and can kill or refuse at one."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import warnings
from hashlib import sha256

import pytest

LACKS = (
    "moto is not installed; `make test-stores` installs it"
    if importlib.util.find_spec("moto") is None
    else None
)
SECRET = "never/show+this"


class Store:
    """A server, and a client of it that is not widenet's.

    Attributes:
        at: Called with the method of each request, and the number of requests of that method since the last
            `count_from_here`; what it returns is the status of the answer, None lets the server answer.
    """

    def __init__(self):
        import boto3
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        moto = DomainDispatcherApplication(create_backend_app)
        self.at, self.lock, self.requests = None, threading.Lock(), []
        self.hold = lambda _: None  # called with the path of each request, before its answer

        def application(environ, answer):
            with self.lock:
                self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
                method = environ["REQUEST_METHOD"]
                number = sum(each == method for each, _ in self.requests)
            self.hold(environ["PATH_INFO"])
            status = None if self.at is None else self.at(method, number)
            if status is None:
                return moto(environ, answer)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            answer(status, [("Content-Length", "0")])
            return [b""]

        self.server = make_server("127.0.0.1", 0, application, threaded=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.environment = {
            "AWS_ACCESS_KEY_ID": "AKIANEVERSHOWTHIS",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}",
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )

    def count_from_here(self, at=None):
        self.requests, self.at = [], at

    def refuse_put(self, which):
        """Refuse one upload of an object, or of a part of one."""
        self.count_from_here(lambda *put: "403 Forbidden" if put == ("PUT", which) else None)

    def objects(self, prefix=""):
        """The content of every object by its key."""
        listed = self.client.list_objects_v2(Bucket="shelf", Prefix=prefix).get("Contents", [])
        return {entry["Key"]: self.read(entry["Key"]) for entry in listed}

    def read(self, key):
        return self.client.get_object(Bucket="shelf", Key=key)["Body"].read()

    def put(self, key, data):
        self.client.put_object(Bucket="shelf", Key=key, Body=data)

    def empty(self):
        for key in self.objects():
            self.client.delete_object(Bucket="shelf", Key=key)

    def published(self, prefix):
        """The files of a dataset or a run, None if there is none, as docs/stores.md describes them."""
        there = self.objects(f"{prefix}/")
        if f"{prefix}/widenet.json" not in there:
            return None
        listed = json.loads(there[f"{prefix}/widenet.json"])["files"]
        files = {name: there[f"{prefix}/files/{entry['sha256']}"] for name, entry in listed.items()}
        for name, entry in listed.items():
            assert (len(files[name]), sha256(files[name]).hexdigest()) == (entry["bytes"], entry["sha256"])
        return files


@pytest.fixture(scope="session")
def server():
    if LACKS:
        pytest.skip(LACKS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries' own code
        store = Store()
        store.client.create_bucket(Bucket="shelf")
    yield store
    store.server.shutdown()


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    """The server with an empty bucket, an empty cache, and their variables."""
    server.count_from_here()
    monkeypatch.setattr(server, "hold", lambda _: None)
    server.empty()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    return server


@pytest.fixture
def widenet_command(tmp_path):
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
        assert SECRET not in text
        assert "NEVERSHOWTHIS" not in text
        return process.returncode, text

    return run
