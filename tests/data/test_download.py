"""Downloads from a real server that breaks off, lies and refuses: whole and checked, or not there."""

import hashlib

import pytest

from tests.data.web import served
from tests.mistakes import mistake
from widenet.data.published import download
from widenet.errors import DataError

BODY = bytes(range(256)) * 40
CHECKSUM = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


@pytest.fixture
def web():
    with served() as found:
        found.files = {"/data.bin": BODY, "/elsewhere": BODY}
        yield found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "checksum", [None, CHECKSUM, f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}"]
)
def test_a_file_is_whole_told_of_and_read_once(web, tmp_path, checksum):
    told = []
    for _ in range(2):
        path = download(
            f"{web.address}/data.bin", tmp_path / "cache", checksum, lambda *done: told.append(done)
        )
    assert path.read_bytes() == BODY
    assert (told[-1], web.asked) == ((10240, 10240), ["/data.bin"])
    assert names(tmp_path / "cache") == ["data.bin"]


def test_a_kept_file_is_compared_with_its_checksum(web, tmp_path):
    path = download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    path.write_bytes(BODY[:-1])
    with mistake(DataError):
        download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    assert path.exists()


def test_what_broke_off_begins_anew(web, tmp_path):
    web.breaks_after = 3000
    with mistake(DataError, place="data.bin"):
        download(f"{web.address}/data.bin", tmp_path)
    assert names(tmp_path) == []
    web.breaks_after = None
    assert download(f"{web.address}/data.bin", tmp_path, CHECKSUM).read_bytes() == BODY


def test_a_wrong_file_is_removed(web, tmp_path):
    web.files["/data.bin"] = b"<html>Log in"
    with mistake(DataError):
        download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    assert not (tmp_path / "data.bin").exists()
    web.files["/data.bin"] = BODY
    assert download(f"{web.address}/data.bin", tmp_path, CHECKSUM).read_bytes() == BODY


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_one_sentence_with_the_place_where_the_file_may_be_put(status, web, tmp_path):
    web.status = status
    with mistake(DataError, place="data.bin"):
        download(f"{web.address}/data.bin", tmp_path)
