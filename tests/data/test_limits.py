"""Memory divided: DuckDB, buckets and batches together take what was said, and fewer threads where it is
short.
"""

import errno
import os
import subprocess
import sys

import pytest

from tests.mistakes import mistake
from widenet.data import ingest as limits
from widenet.data.buckets import BYTES_PER_BUCKET
from widenet.data.ingest import Limits, database
from widenet.errors import DataError, OptionError


@pytest.mark.parametrize(("memory", "threads"), [("400MB", 1), ("600MB", 2), ("2GB", 9), ("64GB", 16)])
def test_the_parts_are_no_more_than_the_whole(memory, threads):
    found = Limits.within(memory, 16)
    assert found.threads == threads
    assert found.database + found.threads * BYTES_PER_BUCKET + 200_000_000 == int(memory[:-2]) * (
        10**9 if memory.endswith("GB") else 10**6
    )
    assert found.database >= 125_000_000 * threads


def test_what_is_not_said_is_a_share_of_what_is_left_or_the_least(monkeypatch):
    monkeypatch.setattr(limits, "available_memory", lambda: 8_000_000_000)
    assert Limits.within(None, 4) == Limits.within("2GB", 4)
    monkeypatch.setattr(limits, "available_memory", lambda: 1000)
    assert Limits.within(None, 4).threads == 1
    monkeypatch.setattr(limits, "available_memory", lambda: None)
    assert Limits.within(None, 4) == Limits(None, 4)


def test_too_little_is_refused():
    with mistake(OptionError, option="memory"):
        Limits.within("100MB", 4)
    with mistake(OptionError):
        Limits.within(None, 0)


INGEST = """
import sys
from pathlib import Path
from widenet.data.ingest import Options, ingest_with

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

start = peak()
ingest_with(Options(sys.argv[1], sys.argv[2], memory=sys.argv[3], threads=2))
print(peak() - start)
"""


def test_a_process_takes_no_more_than_was_said(tmp_path):
    rows, path = 120_000, tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("user,item\n")
        file.writelines(f"{row * 7919 % rows:0>220}u,{row * 104729 % rows:0>220}i\n" for row in range(rows))
    line = [sys.executable, "-c", INGEST, str(path), str(tmp_path / "data"), "400MB"]
    ended = subprocess.run(line, capture_output=True, text=True, check=True)
    assert int(ended.stdout.splitlines()[-1]) <= 400_000_000


def test_a_full_disk_is_refused_in_one_sentence(tmp_path):
    with mistake(DataError, place=tmp_path), database(tmp_path / "scratch", Limits(None, 1)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_refused_in_one_sentence(tmp_path):
    with (
        mistake(DataError, option="memory"),
        database(tmp_path / "scratch", Limits(10_000_000, 1)) as connection,
    ):
        connection.execute("SELECT list(range) FROM range(10000000)").fetchall()


def test_an_interruption_that_the_database_names_is_one(tmp_path):
    with pytest.raises(KeyboardInterrupt), database(tmp_path / "scratch", Limits(None, 1)):
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="another"), database(tmp_path / "scratch", Limits(None, 1)):
        raise RuntimeError("another")
