"""Files that are no text, or a page: what they look like by their first bytes, where a text is to be read."""

import codecs
import re

from widenet.data.formats.text import TextFile

_HEAD_BYTES = 512
_TAR_PLACE = slice(257, 262)
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--[^>]*>\s*)?<(?:!doctype\s+html\b|html[\s>])",
    re.IGNORECASE,
)
_FETCH = "Fetch the file itself: a server sends such a page in its place."
_UNPACK = "Unpack it, and name the file within."
_CONVERT = "Write it as Parquet or CSV."
_KNOWN = {
    b"ARROW1": ("an Arrow file", _CONVERT),
    b"\xff\xff\xff\xff": ("an Arrow stream", _CONVERT),
    b"PAR1": ("a Parquet file", "Say `{}format='parquet'`."),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", _UNPACK),
    b"\x1f\x8b": ("text that gzip compressed twice", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("text that was compressed twice", _UNPACK),
    b"\xfd7zXZ\0": ("a file of xz", _UNPACK),
    b"BZh91AY": ("a file of bzip2", _UNPACK),
    b"7z\xbc\xaf": ("a 7z archive", _UNPACK),
    b"\x89HDF": ("an HDF5 file", _CONVERT),
    b"CDF\x01": ("a NetCDF file", _CONVERT),
    b"CDF\x02": ("a NetCDF file", _CONVERT),
    b"CDF\x05": ("a NetCDF file", _CONVERT),
    b"SQLite format 3": ("an SQLite database", _CONVERT),
    b"\x93NUMPY": ("an array of NumPy", _CONVERT),
    b"%PDF-": ("a PDF", _CONVERT),
}


def foreign_kind(file: TextFile, whose: str) -> tuple[str, str] | None:
    """What a file looks like, decompressed, that is no text of rows, and what to do about it; None for a
    text. whose: as of `Reading`.
    """
    with file.opened() as opened:
        head = opened.read(_HEAD_BYTES)
    if _PAGE.match(head):
        return "an HTML page", _FETCH
    has_nul, is_utf8 = b"\0" in head, _is_utf8(head)
    if is_utf8 and not has_nul:
        return None
    if head[_TAR_PLACE] == b"ustar":
        return "a tar archive", _UNPACK
    for magic, (kind, remedy) in _KNOWN.items():
        if head.startswith(magic):
            return kind, remedy.format(whose)
    is_binary = has_nul and not is_utf8 and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return ("a binary file", _CONVERT) if is_binary else None


def _is_utf8(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8, of which the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
