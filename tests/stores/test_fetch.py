"""Copies of what is in a store: whole, checked, made once, and never something else than was asked for."""

import hashlib
import subprocess
import sys
import threading
from urllib.parse import unquote

import pytest

import widenet
from tests.mistakes import mistake
from tests.stores.servers import in_every_store
from widenet.errors import DataError, StoreError
from widenet.stores import cache
from widenet.stores.bucket import Content
from widenet.stores.folders import StoreManifest, readable

ROWS = b"user,item\na,x\na,y\nb,x\n"


@pytest.fixture
def books(store, tmp_path):
    (tmp_path / "r.csv").write_bytes(ROWS)
    widenet.ingest(tmp_path / "r.csv", store.uri("books"))
    for path in cache.folder("copies").iterdir():
        if path.is_dir():
            path.rename(tmp_path / f"away-{path.name}")
    return store


def downloads(store):
    return [path for method, path in store.requests if method == "GET" and "/files/" in path]


@in_every_store
def test_a_copy_is_made_once(books):
    books.count_from_here()
    assert widenet.Dataset.open(books.uri("books")).num_examples == 2
    assert len(downloads(books)) == 3
    assert widenet.Dataset.open(books.uri("books")).num_examples == 2
    assert len(downloads(books)) == 3


def test_of_several_processes_one_copies(books):
    code = "import widenet; print(widenet.Dataset.open('s3://shelf/books').num_examples)"
    together = threading.Barrier(4, timeout=60)
    books.hold = lambda path: together.wait() if path.endswith("widenet.json") else None
    books.count_from_here()
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [process.communicate()[0] for process in processes] == ["2\n"] * 4
    assert len(downloads(books)) == 3
    assert len([path for path in cache.folder("copies").iterdir() if path.is_dir()]) == 1


@in_every_store
def test_an_object_with_another_content_is_refused_and_no_copy_stays(books):
    key = next(key for key in books.objects("books/files/"))
    books.put(key, bytes(len(books.read(key))))
    with mistake(StoreError):
        widenet.Dataset.open(books.uri("books"))
    assert [
        path.name for path in cache.folder("copies").iterdir() if path.is_dir() and path.name[0] != "."
    ] == []


@in_every_store
def test_a_download_that_fails_once_is_repeated_without_a_word(books, capfd):
    failed = []

    def fail_once(method, number):
        is_file = method == "GET" and "/files/" in unquote(books.path_of(method, number))
        if is_file and books.is_first():
            failed.append(True)
            return "503 Service Unavailable"
        return None

    books.count_from_here(fail_once)
    assert widenet.Dataset.open(books.uri("books")).num_examples == 2
    assert (failed, len(downloads(books))) == ([True], 4)
    assert capfd.readouterr() == ("", "")


def test_a_run_that_is_published_anew_meanwhile_is_copied_as_it_is_then(store):
    def manifest(text):
        digest = hashlib.sha256(text).hexdigest()
        return digest, StoreManifest(
            kind="run", files={"a": Content(bytes=len(text), sha256=digest)}
        ).to_json()

    (first, old), (second, new) = manifest(b"first"), manifest(b"second")
    store.put("run/widenet.json", old)

    def replace(method, number):
        if (method, number) == ("GET", 2):  # of the object that the first manifest lists, which is gone
            store.at = None
            store.put(f"run/files/{second}", b"second")
            store.put("run/widenet.json", new)

    store.count_from_here(replace)
    assert (readable("s3://shelf/run", "run") / "a").read_bytes() == b"second"
    assert f"/shelf/run/files/{first}" in {path for _, path in store.requests}


@in_every_store
@pytest.mark.parametrize("key", ["nothing", "raw"])
def test_what_is_no_dataset_is_refused(store, key):
    store.put("raw/r.csv", ROWS)
    with mistake(StoreError, place="widenet.json"):
        widenet.Dataset.open(store.uri(key))
    assert [path for path in cache.folder("copies").iterdir() if path.is_dir()] == []


@in_every_store
def test_sources_in_a_store_make_the_dataset_of_local_ones(store, tmp_path):
    import pyarrow.csv
    import pyarrow.parquet

    for number, suffix in enumerate((".csv", ".parquet")):
        local = tmp_path / f"r-{number}{suffix}"
        local.write_bytes(ROWS.replace(b"a,", b"c,") if number else ROWS)
        if number:
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(local), local)
        store.put(f"raw/{local.name}", local.read_bytes())
    expected = widenet.ingest(str(tmp_path / "r-*"), tmp_path / "local")
    for sources in (store.uri("raw/*"), [store.uri("raw/r-0.csv"), store.uri("raw/r-1.parquet")]):
        out = tmp_path / f"of {len(sources)}"
        assert widenet.ingest(sources, out).manifest == expected.manifest


@in_every_store
def test_a_source_that_has_changed_is_read_anew(store, tmp_path):
    store.put("r.csv", ROWS)
    assert widenet.ingest(store.uri("r.csv"), tmp_path / "a").num_examples == 2
    store.put("r.csv", ROWS.replace(b"b,", b"a,"))
    assert widenet.ingest(store.uri("r.csv"), tmp_path / "b").num_examples == 1


@in_every_store
@pytest.mark.parametrize("key", ["none.csv", "raw", "none/*"])
def test_a_source_that_does_not_exist_is_named(store, tmp_path, key):
    store.put("raw/r.csv", ROWS)
    with mistake(DataError):
        widenet.ingest(store.uri(key), tmp_path / "a")
    assert not (tmp_path / "a").exists()
