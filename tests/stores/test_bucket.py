"""A store that refuses, is silent or is not there: one sentence, with nothing secret in it."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from widenet.errors import StoreError
from widenet.stores.bucket import Bucket, _problem
from widenet.stores.uri import Uri


@pytest.fixture
def bucket(store):
    del store
    return Bucket(Uri.of("s3://shelf/books"))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("403 Forbidden", "the store refuses access"),
        ("401 Unauthorized", "the store refuses access"),
        ("301 Moved Permanently", "the bucket is in another region. Name it with AWS_REGION"),
        ("400 Bad Request", "the store reports an error"),
    ],
)
def test_a_refusal_is_one_sentence(store, bucket, status, sentence):
    store.count_from_here(lambda *_: status)
    calls = [
        lambda: bucket.read("x"), bucket.version, bucket.sizes, bucket.matches,
        lambda: bucket.upload("x", b"1"), lambda: bucket.delete("x"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreError) as refusal:
            call()
        text = str(refusal.value)
        assert text.startswith(f"s3://shelf/books: {sentence}"), text
        assert text.count("\n") == 0
        assert not set(text.split("/")) & {"never", "AKIANEVERSHOWTHIS"}


def test_a_bucket_that_does_not_exist_is_named(store, tmp_path):
    del store
    missing = Bucket(Uri.of("s3://no-such-bucket/books"))
    calls = [
        lambda: missing.read("x"),
        missing.version,
        missing.sizes,
        missing.matches,
        lambda: missing.upload("x", b"1"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"^s3://no-such-bucket/books: the bucket does not exist\."):
            call()
    assert missing.download("x", tmp_path / "x") is None


def test_what_is_not_there_is_none(bucket, tmp_path):
    assert (bucket.read("x"), bucket.version(), bucket.sizes()) == (None, None, {})
    assert bucket.download("x", tmp_path / "x") is None
    bucket.delete("x")


def test_a_store_that_cannot_be_reached_is_one_sentence(bucket, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(StoreError, match=r"^s3://shelf/books: the store cannot be reached"):
        Bucket(bucket.uri).read("x")


def test_a_store_that_never_answers_is_given_up(bucket, monkeypatch):
    monkeypatch.setattr("widenet.stores.bucket._SILENT_SECONDS", 1)
    monkeypatch.setattr("widenet.stores.bucket._ATTEMPTS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StoreError, match="the store cannot be reached, or does not answer"):
            Bucket(bucket.uri).read("x")


@pytest.mark.parametrize("endpoint", ["::::", "http://", "ftp://never-show-this/x", "http://u:never@[::bad"])
def test_a_wrong_endpoint_is_one_sentence_that_does_not_repeat_it(bucket, monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StoreError) as refusal:
        Bucket(bucket.uri).read("x")
    assert "never" not in str(refusal.value)


def test_the_endpoint_for_s3_comes_before_the_general_one(store, bucket, monkeypatch):
    store.put("books/x", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert Bucket(bucket.uri).read("x") == b"1"


@pytest.fixture
def google(monkeypatch):
    """Answers every request of Google's library with the status in this list."""
    from pyarrow import fs

    statuses = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = b'{"error": {"message": "never show this"}}'
            self.send_response(statuses[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        system = fs.GcsFileSystem(anonymous=True, endpoint_override=place, scheme="http")
        monkeypatch.setattr("widenet.stores.bucket._file_system", lambda _: system)
        yield statuses
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "the store refuses access"),
        (403, "the store refuses access"),
        (404, "the bucket does not exist"),
    ],
)
def test_a_refusal_of_google_is_one_sentence(google, status, sentence):
    google.append(status)
    bucket = Bucket(Uri.of("gs://shelf/books"))
    calls = [lambda: bucket.read("x"), bucket.version, bucket.sizes, lambda: bucket.upload("x", b"1")]
    for call in calls:
        with pytest.raises(StoreError, match=f"^gs://shelf/books: {sentence}") as refusal:
            call()
        assert "never" not in str(refusal.value)


def test_patterns_match_within_a_folder(store):
    for key in ("a/1.csv", "a/2.csv", "a/b/3.csv", "a/4.txt", "b/5.csv", "a/../6.csv", "top.csv"):
        store.put(key, b"")

    def matches(pattern):
        return [str(uri) for uri in Bucket(Uri.of(f"s3://shelf/{pattern}")).matches()]

    assert matches("a/*.csv") == ["s3://shelf/a/1.csv", "s3://shelf/a/2.csv"]
    assert matches("*/[3-5].csv") == ["s3://shelf/b/5.csv"]
    assert matches("*.csv") == ["s3://shelf/top.csv"]
    assert matches("a/*/*.csv") == ["s3://shelf/a/b/3.csv"]
    assert matches("c/*") == []


def test_a_refusal_says_whether_there_were_credentials(monkeypatch):
    refused = "When reading: AWS Error ACCESS_DENIED (HTTP status 403) during GetObject operation"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    said = str(_problem(Uri.of("s3://shelf/books"), refused))
    assert said.endswith(
        "The environment names no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )
    monkeypatch.setenv("AWS_PROFILE", "mine")
    said = str(_problem(Uri.of("s3://shelf/books"), refused))
    assert said.endswith("Check that the credentials in the environment may use this bucket.")
