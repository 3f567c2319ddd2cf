"""The network format of Caffe's networks as text, for `widenet import`."""

from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions, Likeness, text_of
from widenet.optional import optional

NAME = "a Caffe network without weights"
SUFFIXES = (".prototxt",)
TAKES = ("weights",)
_WORDS = ("layer {", "layer{", "layers {", "layers{", "input:")


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    del path
    text = text_of(head)
    if text is None or text.lstrip()[:1] == "{" or not any(word in text for word in _WORDS):
        return Likeness.NONE
    return Likeness.CONTENT


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("protobuf", "caffe"):
        from widenet.frameworks.caffe_import import read_caffe
    from widenet.interop.imported import write_imported

    return write_imported(read_caffe(path, True, options.weights), out, options)
