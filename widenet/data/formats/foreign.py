"""Recognizes binary files and web pages by their first bytes where a text is expected."""

import codecs
import re

from widenet.data.formats.text import TextFile

_HEAD_BYTES = 512
_TAR_MAGIC = slice(257, 262)
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--[^>]*>\s*)?<(?:!doctype\s+html\b|html[\s>])",
    re.IGNORECASE,
)
_FETCH = "Download the file itself: the server sent a web page instead."
_UNPACK = "Unpack it, and name the file within."
_CONVERT = "Write it as Parquet or CSV."
_ENCODE = "Save it as UTF-8, or convert it with `iconv -f {} -t utf-8`."
_BY_MAGIC = {
    b"ARROW1": ("an Arrow file", _CONVERT),
    b"\xff\xff\xff\xff": ("an Arrow stream", _CONVERT),
    b"PAR1": ("a Parquet file", "Use `{}format='parquet'`."),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", _UNPACK),
    b"\x1f\x8b": ("text that gzip compressed twice", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("text that was compressed twice", _UNPACK),
    b"\xfd7zXZ\0": ("an xz file", _UNPACK),
    b"BZh91AY": ("a bzip2 file", _UNPACK),
    b"7z\xbc\xaf": ("a 7z archive", _UNPACK),
    b"\x89HDF": ("an HDF5 file", _CONVERT),
    b"CDF\x01": ("a NetCDF file", _CONVERT),
    b"CDF\x02": ("a NetCDF file", _CONVERT),
    b"CDF\x05": ("a NetCDF file", _CONVERT),
    b"SQLite format 3": ("an SQLite database", _CONVERT),
    b"\x93NUMPY": ("a NumPy array", _CONVERT),
    b"%PDF-": ("a PDF", _CONVERT),
    codecs.BOM_UTF32_LE: ("text in UTF-32", _ENCODE.format("utf-32")),  # begins with the mark of UTF-16
    codecs.BOM_UTF16_LE: ("text in UTF-16", _ENCODE.format("utf-16")),
    codecs.BOM_UTF16_BE: ("text in UTF-16", _ENCODE.format("utf-16")),
}


def foreign_kind(file: TextFile, prefix: str) -> tuple[str, str] | None:
    """Return what a file that is not a text in UTF-8 looks like, and what to do about it; None for a text.

    Args:
        file: The file; its first bytes are decompressed.
        prefix: Prefix of the options in the remedy, as in `Reading`.
    """
    with file.opened() as stream:
        head = stream.read(_HEAD_BYTES)
    if _PAGE.match(head):
        return "an HTML page", _FETCH
    has_nul, is_utf8 = b"\0" in head, _is_utf8(head)
    if is_utf8 and not has_nul:
        return None
    if head[_TAR_MAGIC] == b"ustar":
        return "a tar archive", _UNPACK
    for magic, (kind, remedy) in _BY_MAGIC.items():
        if head.startswith(magic):
            return kind, remedy.format(prefix)
    return ("a binary file", _CONVERT) if has_nul and not is_utf8 else None


def _is_utf8(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
