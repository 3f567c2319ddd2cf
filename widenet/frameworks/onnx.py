"""The network format ONNX, for `widenet export`."""

from pathlib import Path

from widenet.optional import optional

SUFFIXES = (".onnx",)


def export_model(
    run: Path, out: Path, top_k: int | None, exclude_seen: bool, overwrite: bool = False
) -> list[Path]:
    """See `NetworkWriter.export_model`."""
    with optional("onnx", "onnx"):
        from widenet.frameworks.onnx_export import export_onnx
    from widenet.runs import Model

    return export_onnx(Model.load(run, "cpu"), out, top_k, exclude_seen, overwrite)
