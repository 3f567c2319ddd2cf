"""Files that tests write stay in the system's cache: other processes read them there, also those of a killed
one, and no test takes the power away. A training forces dozens of files to disk, and waits for each.
"""

import os
from typing import Any


def fsync(fd: Any) -> None:
    """Stands in for `os.fsync`: fails for what is no open file, and does not wait."""
    os.fstat(fd if isinstance(fd, int) else fd.fileno())


def begin() -> None:
    """Wait for no disk from now on, in this process and its copies; programs that start from nothing do."""
    os.fsync = fsync
