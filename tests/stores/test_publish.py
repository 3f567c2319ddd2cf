"""Publishing in a store: whole or invisible, never over what somebody else has put there."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import widenet
from tests.mistakes import mistake
from tests.stores.servers import in_every_store
from widenet.data.writer import publication
from widenet.errors import OptionError, StoreError
from widenet.predict.files import Block, open_results
from widenet.stores.bucket import Bucket
from widenet.stores.uri import Uri

ROWS = "user,item\n" + "".join(
    f"u{user},i{(user * 7 + n * n) % 40}\n" for user in range(60) for n in range(5)
)


def unsent():
    from widenet.stores import cache

    return [path for path in cache.folder("unsent").iterdir() if not path.name.startswith(".")]


@pytest.fixture
def csv(store, tmp_path):
    del store
    path = tmp_path / "r.csv"
    path.write_text(ROWS)
    return path


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@in_every_store
def test_a_dataset_in_a_store_has_the_bytes_of_a_local_one(store, csv, tmp_path):
    local = widenet.ingest(csv, tmp_path / "books")
    widenet.ingest(csv, store.uri("books"))
    assert store.published("books") == files_of(local.path)
    there = store.objects("books/")
    assert len(there) == len(files_of(local.path)) + 1
    assert unsent() == []


@in_every_store
@pytest.mark.parametrize("name", ["/notes.txt", "/files/notes.txt", "/sub/widenet.json", "/widenet.json", ""])
def test_a_prefix_with_other_objects_is_refused_before_any_work(store, csv, name):
    store.put(f"books{name}", b"mine")
    with mistake(StoreError):
        widenet.ingest(csv, store.uri("books"))
    assert store.objects() == {f"books{name}": b"mine"}


@in_every_store
def test_an_equal_dataset_of_an_earlier_attempt_counts_as_published(store, csv, tmp_path):
    local = widenet.ingest(csv, tmp_path / "local").path

    def publish(name=None):
        with publication(Path(store.uri("books")), is_repeated=True) as folder:
            shutil.copytree(local, folder, dirs_exist_ok=True)
            if name is not None:
                (folder / name).touch()

    publish()
    before = store.objects("books")
    publish()
    assert store.objects("books") == before
    with mistake(StoreError):
        publish("another")
    assert store.published("books") == {path.name: path.read_bytes() for path in local.iterdir()}


@in_every_store
def test_a_dataset_that_somebody_else_publishes_meanwhile_stays(store, csv):
    widenet.ingest(csv, store.uri("other"), min_user_items=2)
    other = {key.replace("other", "books", 1): data for key, data in store.objects().items()}

    def publish_the_other(*put):
        if put == ("PUT", 2):
            store.at = None
            for key, data in other.items():
                store.put(key, data)

    store.count_from_here(publish_the_other)
    with mistake(StoreError):
        widenet.ingest(csv, store.uri("books"))
    assert store.objects("books/widenet.json") == {"books/widenet.json": other["books/widenet.json"]}
    assert store.published("books") is not None


@in_every_store
def test_a_failed_upload_keeps_the_finished_dataset_and_is_repeated_from_what_is_there(store, csv):
    store.refuse_put(3)
    with mistake(StoreError):
        widenet.ingest(csv, store.uri("books"))
    assert store.published("books") is None
    (kept,) = unsent()
    assert widenet.Dataset.open(kept).num_examples == 60
    assert len(store.objects()) == 2
    store.count_from_here()
    widenet.ingest(csv, store.uri("books"))
    assert len([method for method, _ in store.requests if method == "PUT"]) == 2
    assert store.published("books") == files_of(widenet.Dataset.open(store.uri("books")).path)


@in_every_store
def test_predictions_appear_under_their_name(store, tmp_path):
    for place in (tmp_path / "a.csv", store.uri("out/a.csv")):
        with open_results(Path(place)) as results:
            units = np.zeros(1, np.int64)
            results.write(Block(["u"], np.array([1]), ["i"], np.array([0.5], np.float32), units))
    assert store.read("out/a.csv") == (tmp_path / "a.csv").read_bytes()
    with mistake(OptionError, place="a.csv"), open_results(Path(store.uri("out/a.csv"))):
        pass
    assert unsent() == []


@in_every_store
def test_a_large_file_arrives(store, tmp_path):
    data = b"0123456789abcde" * 2**20
    (tmp_path / "file").write_bytes(data)
    Bucket(Uri.of(store.uri("folder"))).upload("file", tmp_path / "file")
    assert store.read("folder/file") == data


def killed_at(store, method, number, running):
    """Let the server kill a process group when a request arrives; it is answered after that."""

    def kill(*request):
        if request == (method, number):
            store.at = None
            os.killpg(running[-1].pid, signal.SIGKILL)

    store.count_from_here(kill)


@in_every_store
def test_ten_kills_while_a_dataset_is_sent_leave_no_partial_dataset(store, csv, tmp_path, widenet_command):
    expected, running, outcomes = files_of(widenet.ingest(csv, tmp_path / "local").path), [], []
    words = ["data", "ingest", csv, "--out", store.uri("books")]
    requests = [("PUT", 1), ("PUT", 2), ("PUT", 3), ("PUT", 4), ("PUT", 1), ("PUT", 1), ("PUT", 1)]
    for place, request in enumerate([*requests, ("GET", 1), ("GET", 2), ("GET", 3)]):
        killed_at(store, *request, running)
        status, text = widenet_command(*words, started=running.append)
        store.count_from_here()
        assert status == -signal.SIGKILL, (request, text)
        outcomes.append(store.published("books"))
        if place < 4 or outcomes[-1] is not None:  # later kills find what earlier ones have left
            store.empty()
    assert [files for files in outcomes if files not in (None, expected)] == []
    assert None in outcomes
    status, text = widenet_command(*words)
    assert (status, store.published("books")) == (0, expected), text
