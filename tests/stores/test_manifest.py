"""The manifest in a store is anybody's: what does not belong to it is refused."""

import hashlib
import json

import pytest

from tests.mistakes import mistake
from widenet.errors import StoreError
from widenet.stores.bucket import Content
from widenet.stores.folders import StoreManifest

GOOD = StoreManifest(kind="dataset", files={"a/b.arrow": Content(bytes=3, sha256="0" * 64)})


def signed(**changes):
    """A manifest with changes and the right checksum, written with nothing of widenet's."""
    document = json.loads(GOOD.to_json()) | changes
    document.pop("sha256")
    document["sha256"] = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps(document).encode()


def test_a_manifest_is_read_as_it_was_written():
    assert StoreManifest.from_json(GOOD.to_json(), "x") == GOOD
    assert StoreManifest.from_json(signed(), "x") == GOOD


ENTRY = {"bytes": 3, "sha256": "0" * 64}
NAMES = ["../a", "/etc/passwd", "a/../../b", "", "a//b", "./a", "a/", "..", "a\\b", "a\nb", "a\0b", "é" * 128]
CHANGES = [
    *({"files": {name: ENTRY}} for name in NAMES),
    *({"files": {"a": ENTRY | {"bytes": number}}} for number in (-1, True, "3")),
    *({"files": {"a": ENTRY | {"sha256": digest}}} for digest in ("../x", 7)),
    {"files": {"a": {"bytes": 1}}},
    {"files": {"a": ENTRY, "a/b/c": ENTRY}},
    *({"files": files} for files in ([1], None)),
    {"more": []},
    *({"kind": kind} for kind in ("model", [])),
    *({"format_version": version} for version in (2, "1")),
]
TEXTS = [b"", b"[]", b"3", b"\xff", b"[" * 100_000, GOOD.to_json()[:-9]]


@pytest.mark.parametrize(
    "text", [*(signed(**each) for each in CHANGES), *TEXTS, GOOD.to_json().replace(b"b.arrow", b"c.arrow")]
)
def test_what_is_no_manifest_of_files_in_a_folder_is_refused(text):
    with mistake(StoreError):
        StoreManifest.from_json(text, "x")
