"""The network format ONNX, for `widenet import` and `widenet export`."""

from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions, Likeness
from widenet.optional import optional

NAME = "an ONNX model"
SUFFIXES = (".onnx",)
TAKES: tuple[str, ...] = ()
_FIRST = b"\x08"
"""First byte of a model: the tag of its version."""


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    del path
    return Likeness.CONTENT if head.startswith(_FIRST) else Likeness.NONE


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("onnx", "onnx"):
        from widenet.frameworks.onnx_import import read_onnx
    from widenet.interop.imported import write_imported

    return write_imported(read_onnx(path), out, options)


def export_model(
    run: Path, out: Path, top_k: int | None, exclude_seen: bool, overwrite: bool = False
) -> list[Path]:
    """See `NetworkWriter.export_model`."""
    with optional("onnx", "onnx"):
        from widenet.frameworks.onnx_export import export_onnx
    from widenet.runs import Model

    return export_onnx(Model.load(run, "cpu"), out, top_k, exclude_seen, overwrite)
