"""What must outlast a power cut."""

import os
from pathlib import Path


def force_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or the names that a folder holds, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
