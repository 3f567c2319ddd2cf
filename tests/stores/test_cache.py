"""The cache: where it is, that it is bounded, and that nobody makes one who names no URI."""

import os
import subprocess
import sys

import pytest

from widenet.stores import cache


@pytest.fixture
def copies(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    return cache.folder("copies")


def entry(copies, name, kib, last_use):
    """A copy that another process has used."""
    (copies / name).mkdir()
    (copies / name / "data").write_bytes(bytes(kib * 1024))
    lock = copies / f".{name}.lock"
    lock.touch()
    os.utime(lock, (last_use, last_use))
    return copies / name


def left(copies):
    return sorted(path.name for path in copies.iterdir() if not path.name.startswith("."))


def test_the_copies_that_were_unused_for_longest_are_removed(copies, monkeypatch):
    for name, last_use in {"b": 2, "a": 1, "d": 4, "c": 3}.items():
        entry(copies, name, 1024, last_use)
    monkeypatch.setenv("WIDENET_CACHE_GIB", str(2 / 1024))
    cache.make_room()
    assert left(copies) == ["c", "d"]


def test_a_copy_that_a_process_uses_stays(copies, monkeypatch):
    used = entry(copies, "used", 1024, 1)
    entry(copies, "unused", 1024, 2)
    code = (
        "import sys; from widenet.stores import cache;"
        " print(cache.copy('used', None), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == f"{used}\n"
        os.utime(copies / ".used.lock", (1, 1))
        monkeypatch.setenv("WIDENET_CACHE_GIB", "0")
        cache.make_room()
        assert left(copies) == ["used"]
        other.stdin.close()
    cache.make_room()
    assert left(copies) == []


def test_what_a_killed_process_has_left_counts_and_is_removed(copies, monkeypatch):
    (copies / ".x.lock").touch()
    partial = cache.partial(copies / "x")
    partial.mkdir()
    (partial / "data").write_bytes(bytes(1024))
    monkeypatch.setenv("WIDENET_CACHE_GIB", "0")
    cache.make_room()
    assert not partial.exists()


def test_local_work_makes_no_cache_and_asks_no_store(tmp_path):
    (tmp_path / "r.csv").write_text("user,item\na,x\na,y\nb,x\n")
    make = (
        "import widenet, widenet.stores.bucket as bucket; bucket.Bucket.__init__ = None;"
        " widenet.ingest('r.csv', 'd', sequence=True); widenet.split('d', 'e', heldout_last=1)"
    )
    read = "import sys, widenet; widenet.Dataset.open('e'); sys.exit('pyarrow.fs' in sys.modules)"
    variables = {"HOME": str(tmp_path / "home"), "WIDENET_CACHE": str(tmp_path / "cache")}
    for code in (make, read):
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, cwd=tmp_path, env={**os.environ, **variables}, check=False)
        assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "e", "r.csv"]
