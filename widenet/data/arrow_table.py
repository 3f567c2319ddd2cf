"""Opens a whole Arrow file that lies beside the examples, once it is known to be undamaged."""

from pathlib import Path

import pyarrow as pa

from widenet.data.manifest import sha256_of
from widenet.errors import DataError

REMEDY = "Copy it from the dataset again, or ingest again."


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
        raise DataError(
            f"{path}: the {what} does not exist. Copy it from the dataset directory, or ingest again."
        )
    try:
        # Compared before Arrow reads anything.
        if sha256 is not None and sha256_of(path) != sha256:
            raise DataError(f"{path}: the {what} is damaged: its SHA-256 is not the recorded one. {REMEDY}")
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        # Checks offsets and UTF-8, which Arrow's functions trust.
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: a {what} must be an Arrow IPC file; {str(error).rstrip('.')}. {REMEDY}"
        ) from error
    return table
