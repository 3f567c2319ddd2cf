"""Opens whole Arrow files beside the examples, once they are known to be undamaged, and makes texts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.manifest import sha256_of
from widenet.errors import DataError, reason_of


def open_table(path: Path, what: str, sha256: str | None) -> pa.Table:
    """Open and check the table in a file, memory-mapped.

    Args:
        path: The file.
        what: Word for such a file in messages.
        sha256: The file's SHA-256, if it is known.

    Raises:
        DataError: The file is missing, damaged, or not an Arrow IPC file.
    """
    if not path.is_file():
        raise DataError(f"{path}: the {what} does not exist.")
    try:
        # Compared before Arrow reads anything.
        if sha256 is not None and sha256_of(path) != sha256:
            raise DataError(f"{path}: the {what} is damaged: its SHA-256 is not the recorded one.")
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        # Checks offsets and UTF-8, which Arrow's functions trust.
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: a {what} must be an Arrow IPC file; {reason_of(error)}.") from error
    return table


def texts_array(texts: Sequence[str]) -> pa.Array:
    """Make an Arrow array of texts; `pa.array` would first import pandas if installed.

    What is no Unicode, as the arguments of a command can be, is escaped: no file holds such a text.
    """
    written = [text.encode(errors="backslashreplace") for text in texts]
    ends = np.cumsum([0, *map(len, written)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(written)))
