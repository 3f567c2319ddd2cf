"""A store that refuses, is silent or is not there: one sentence, with nothing secret in it."""

import socket

import pytest

from tests.mistakes import mistake
from tests.stores.servers import in_every_store
from widenet.errors import StoreError
from widenet.stores.bucket import Bucket
from widenet.stores.uri import Uri


@pytest.fixture
def bucket(store):
    return Bucket(Uri.of(store.uri("books")))


def calls(bucket, tmp_path):
    """Every call of a bucket that asks the store."""
    return [
        lambda: bucket.read("x"),
        bucket.version,
        bucket.sizes,
        bucket.matches,
        lambda: bucket.upload("x", b"1"),
        lambda: bucket.download("x", tmp_path / "x"),
        lambda: bucket.delete("x"),
    ]


def check_refusals(store, bucket, tmp_path):
    for call in calls(bucket, tmp_path):
        with mistake(StoreError, place=bucket.uri) as refusal:
            call()
        assert [secret for secret in store.secrets if secret in str(refusal.value)] == []


@in_every_store
def test_a_refusal_is_one_sentence(store, bucket, tmp_path):
    store.count_from_here(lambda *_: "403 Forbidden")
    check_refusals(store, bucket, tmp_path)


@in_every_store
def test_a_bucket_that_does_not_exist_is_named(store, tmp_path):
    missing = Bucket(Uri.of(f"{store.scheme}://no-such-bucket/books"))
    check_refusals(store, missing, tmp_path)


@in_every_store
def test_what_is_not_there_is_none(bucket, tmp_path):
    assert (bucket.read("x"), bucket.version(), bucket.sizes()) == (None, None, {})
    assert bucket.download("x", tmp_path / "x") is None
    bucket.delete("x")


def at_port(store, monkeypatch, port):
    """The bucket at another server, which gets a second to answer."""
    monkeypatch.setattr("widenet.stores.bucket.SILENT", "1s")
    monkeypatch.setattr("widenet.stores.bucket.RETRIES", 1)
    for name, value in store.variables(f"http://127.0.0.1:{port}").items():
        monkeypatch.setenv(name, value)
    return Bucket(Uri.of(store.uri("books")))


@in_every_store
def test_a_store_that_never_answers_is_given_up(store, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bucket = at_port(store, monkeypatch, silent.getsockname()[1])
        with mistake(StoreError):
            bucket.read("x")


@in_every_store
def test_patterns_match_within_a_folder(store):
    for key in ["a/1.csv", "a/2.csv", "a/b/3.csv", "a/4.txt", "b/5.csv", "top.csv"]:
        store.put(key, b"1")

    def matches(pattern):
        return [uri.key for uri in Bucket(Uri.of(store.uri(pattern))).matches()]

    assert matches("a/*.csv") == ["a/1.csv", "a/2.csv"]
    assert matches("*/[3-5].csv") == ["b/5.csv"]
    assert matches("*.csv") == ["top.csv"]
    assert matches("a/*/*.csv") == ["a/b/3.csv"]
    assert matches("c/*") == []


def test_a_profile_of_aws_is_read_by_boto3(store, tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text(
        f"[shelves]\naws_access_key_id = {store.secrets[1]}\naws_secret_access_key = {store.secrets[0]}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "shelves")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    bucket = Bucket(Uri.of("s3://shelf/books"))
    bucket.upload("x", b"1")
    assert store.objects() == {"books/x": b"1"}
