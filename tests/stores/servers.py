"""Servers of the three kinds of store on this machine, each with a client that is not widenet's."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path

import pytest

AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"

AZURITE_OPTIONS = ("--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck")


class Store:
    """A server, and a client of it that is not widenet's; counts requests, and can kill or refuse at one.

    Attributes:
        at: Called with the method of each request, and the number of requests of that method since the last
            `count_from_here`; what it returns is the status of the answer, None lets the server answer.
        environment: The variables with which widenet finds the server.
        secrets: Texts that must be nowhere.
    """

    needs = ()

    def __init__(self):
        from werkzeug.serving import make_server

        self.at, self.lock, self.requests = None, threading.Lock(), []
        self.hold = lambda _: None  # called with the path of each request, before its answer
        answered = self.start()

        def application(environ, answer):
            with self.lock:
                method = environ["REQUEST_METHOD"]
                if method == "POST" and {"delete", "comp=batch"} & {*environ["QUERY_STRING"].split("&")}:
                    method = "DELETE"
                self.requests.append((method, environ["PATH_INFO"]))
                number = sum(each == method for each, _ in self.requests)
            self.hold(environ["PATH_INFO"])
            status = None if self.at is None else self.at(method, number)
            if status is None:
                return answered(environ, answer)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            text = b"" if method == "HEAD" else b"never show this"
            answer(status, [("Content-Length", str(len(text)))])
            return [text]

        self.server = make_server("127.0.0.1", 0, application, threaded=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.port}"
        self.connect()
        self.environment = self.variables(self.address)

    @classmethod
    def lacks(cls):
        """Why the server cannot run, None if it can."""
        missing = [name for name in cls.needs if not is_installed(name)]
        return f"{missing[0]} is not installed; `make test-stores` installs it" if missing else None

    def uri(self, key):
        return f"{self.scheme}://shelf/{key}"

    def count_from_here(self, at=None):
        self.requests, self.at = [], at

    def is_first(self):
        """Whether no request was the first before; `at` is called no more. Requests come at the same time."""
        with self.lock:
            first, self.at = self.at is not None, None
        return first

    def path_of(self, method, number):
        """The path of a request, as `at` gets it."""
        with self.lock:
            return [path for each, path in self.requests if each == method][number - 1]

    def refuse_put(self, which):
        """Refuse one upload of an object, or of a part of one."""
        self.count_from_here(lambda *put: "403 Forbidden" if put == ("PUT", which) else None)

    def objects(self, prefix=""):
        """The content of every object by its key."""
        return {key: self.read(key) for key in self.keys(prefix)}

    def empty(self):
        for key in self.keys():
            self.remove(key)

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

    def stop(self):
        self.server.shutdown()


class S3(Store):
    """moto's server, asked by boto3."""

    scheme, needs = "s3", ("moto",)

    def start(self):
        from moto.server import DomainDispatcherApplication, create_backend_app

        return DomainDispatcherApplication(create_backend_app)

    def connect(self):
        import boto3

        self.secrets = ("never/show+this", "AKIANEVERSHOWTHIS")
        credentials = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=self.address, **credentials)
        self.client.create_bucket(Bucket="shelf")

    def variables(self, address):
        return {
            "AWS_ACCESS_KEY_ID": self.secrets[1],
            "AWS_SECRET_ACCESS_KEY": self.secrets[0],
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
        }

    def keys(self, prefix=""):
        listed = self.client.list_objects_v2(Bucket="shelf", Prefix=prefix).get("Contents", [])
        return [entry["Key"] for entry in listed]

    def read(self, key):
        return self.client.get_object(Bucket="shelf", Key=key)["Body"].read()

    def put(self, key, data):
        self.client.put_object(Bucket="shelf", Key=key, Body=data)

    def remove(self, key):
        self.client.delete_object(Bucket="shelf", Key=key)


class Azure(Store):
    """Azurite, Microsoft's emulator, asked by Microsoft's library."""

    scheme, needs = "abfs", ("werkzeug", "azure.storage.blob")

    @classmethod
    def lacks(cls):
        """Why the server cannot run, None if it can."""
        if not AZURITE.exists():
            return "azurite is not installed; `make test-stores` installs it if there is npm"
        return super().lacks()

    def start(self):
        self.key = base64.b64encode(b"never show this key of an account").decode()
        self.secrets = (self.key, "never show this key")
        self.process, self.port = started(
            ["node", str(AZURITE), "--blobPort", "0", *AZURITE_OPTIONS],
            "successfully listens on http://127.0.0.1:",
            AZURITE_ACCOUNTS=f"shelves:{self.key}",
        )
        return lambda environ, answer: passed_on(self.port, environ, answer)

    def connect(self):
        from azure.storage.blob import BlobServiceClient

        service = BlobServiceClient(f"http://127.0.0.1:{self.port}/shelves", self.key)
        self.client = service.create_container("shelf")

    def variables(self, address):
        parts = {"AccountName": "shelves", "AccountKey": self.key, "BlobEndpoint": f"{address}/shelves"}
        return {"AZURE_STORAGE_CONNECTION_STRING": ";".join(f"{name}={parts[name]}" for name in parts)}

    def keys(self, prefix=""):
        return list(self.client.list_blob_names(name_starts_with=prefix))

    def read(self, key):
        return self.client.download_blob(key).readall()

    def put(self, key, data):
        self.client.upload_blob(key, data, overwrite=True)

    def remove(self, key):
        self.client.delete_blob(key)

    def stop(self):
        super().stop()
        self.process.kill()
        self.process.communicate()


SIGNED = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""A header by which moto tells that a request is one for S3."""


class Google(S3):
    """moto's server, asked by boto3: Google's XML API is that of S3, but for the tokens of its accounts."""

    scheme, needs = "gs", ("moto", "cryptography")

    def start(self):
        answered = super().start()

        def application(environ, answer):
            if environ["PATH_INFO"] != "/token":
                is_bearer = environ.get("HTTP_AUTHORIZATION") == "Bearer never-show-this"
                return answered(environ | ({"HTTP_AUTHORIZATION": SIGNED} if is_bearer else {}), answer)
            answer("200 OK", [("Content-Type", "application/json")])
            return [b'{"access_token": "never-show-this", "expires_in": 3600, "token_type": "Bearer"}']

        return application

    def connect(self):
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import rsa

        super().connect()
        key = rsa.generate_private_key(65537, 2048)
        encoding = form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        text = key.private_bytes(*encoding).decode()
        self.secrets = (text.splitlines()[3], "never-show-this")
        account = {
            "type": "service_account", "project_id": "p", "private_key_id": "k", "private_key": text,
            "client_email": "a@p.iam.gserviceaccount.com", "client_id": "1",
            "token_uri": f"{self.address}/token",
        }  # fmt: skip
        self.folder = tempfile.mkdtemp()
        (Path(self.folder) / "key.json").write_text(json.dumps(account))

    def variables(self, address):
        return {"GOOGLE_APPLICATION_CREDENTIALS": f"{self.folder}/key.json", "GOOGLE_BASE_URL": address}

    def stop(self):
        super().stop()
        shutil.rmtree(self.folder)


in_every_store = pytest.mark.parametrize(
    "store", [S3, Azure, Google], indirect=True, ids=lambda kind: kind.scheme
)


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def started(words, before_port, **variables):
    """A server as a process of its own, and the port that it prints."""
    process = subprocess.Popen(
        words,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in process.stdout:
        if before_port in line:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(line.partition(before_port)[2])
    raise AssertionError(words)


def passed_on(port, environ, answer):
    """Let the server at a port answer a request."""
    names = {name: name[5:].replace("_", "-") for name in environ if name.startswith("HTTP_")}
    names |= {"CONTENT_TYPE": "Content-Type", "CONTENT_LENGTH": "Content-Length"}
    headers = {sent: environ[name] for name, sent in names.items() if environ.get(name)}
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    if len(body) < length:  # the client was killed
        answer("400 Bad Request", [])
        return []
    status, reason, got, content = asked(port, environ["REQUEST_METHOD"], environ["RAW_URI"], body, headers)
    dropped = {"connection", "transfer-encoding", "keep-alive"}
    answer(f"{status} {reason}", [pair for pair in got if pair[0].lower() not in dropped])
    return [content]


def asked(port, method, path, body, headers=()):
    """Status, reason, headers and content of the answer of the server at a port."""
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.reason, answer.getheaders(), answer.read()
