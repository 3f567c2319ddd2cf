"""The network format of Caffe's networks with weights, for `widenet import`."""

from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions, Likeness, text_of
from widenet.optional import optional

NAME = "a Caffe network with its weights"
SUFFIXES = (".caffemodel",)
TAKES: tuple[str, ...] = ()
_FIRST = (b"\x0a", b"\x12", b"\xa2\x06")
"""First bytes of a network: the tag of its name or of its layers."""


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    del path
    return Likeness.CONTENT if head.startswith(_FIRST) and text_of(head) is None else Likeness.NONE


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("protobuf", "caffe"):
        from widenet.frameworks.caffe_import import read_caffe
    from widenet.interop.imported import write_imported

    return write_imported(read_caffe(path, False, None), out, options)
