"""The manifest in a store is anybody's: what does not belong to it is refused."""

import hashlib
import json

import pytest

from tests.mistakes import mistake
from widenet.errors import StoreError
from widenet.stores.bucket import Content
from widenet.stores.store_manifest import StoreManifest

GOOD = StoreManifest("dataset", {"a/b.arrow": Content(3, "0" * 64)}, frozenset({"1" * 64}))


def signed(**changes):
    """A manifest with changes and the right checksum, written with nothing of widenet's."""
    document = json.loads(GOOD.to_json()) | changes
    document.pop("sha256")
    document["sha256"] = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps(document).encode()


def test_a_manifest_is_read_as_it_was_written():
    assert StoreManifest.of(GOOD.to_json(), "x") == GOOD
    assert StoreManifest.of(signed(), "x") == GOOD


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "", "a//b", "./a", "a/", "..", "a\\b", "a\nb", "a\0b"]
)
def test_a_file_outside_its_folder_is_refused(name):
    entry = {"bytes": 3, "sha256": "0" * 64}
    with mistake(StoreError):
        StoreManifest.of(signed(files={name: entry}), "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"a": {"bytes": -1, "sha256": "0" * 64}}},
        {"files": {"a": {"bytes": True, "sha256": "0" * 64}}},
        {"files": {"a": {"bytes": 1, "sha256": "../x"}}},
        {"files": {"a": {"bytes": 1, "sha256": 7}}},
        {"files": {"a": {"bytes": 1}}},
        {"files": {name: {"bytes": 1, "sha256": "0" * 64} for name in ("a", "a/b/c")}},
        {"files": {"é" * 128: {"bytes": 1, "sha256": "0" * 64}}},
        {"files": [1]},
        {"files": None},
        {"replaced": ["../other"]},
        {"replaced": [["x"]]},
        {"replaced": 1},
        {"kind": "model"},
        {"kind": []},
        {"format_version": 2},
        {"format_version": "1"},
    ],
)
def test_another_mistake_is_refused(changes):
    with mistake(StoreError):
        StoreManifest.of(signed(**changes), "x")


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"\xff", b"[" * 100_000, GOOD.to_json()[:-9]])
def test_what_is_no_manifest_is_refused(text):
    with mistake(StoreError):
        StoreManifest.of(text, "x")


def test_a_changed_manifest_is_refused():
    with mistake(StoreError):
        StoreManifest.of(GOOD.to_json().replace(b"b.arrow", b"c.arrow"), "x")
