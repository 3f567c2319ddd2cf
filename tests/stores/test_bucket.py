"""A store that refuses, is silent or is not there: one sentence, with nothing secret in it."""

import socket

import pytest

from widenet.errors import StoreError
from widenet.stores.bucket import Bucket
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
