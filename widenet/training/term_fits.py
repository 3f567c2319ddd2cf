"""The fits of neighbourhood terms in log.jsonl: an entry of the line of the last epoch."""

import json
from collections.abc import Sequence
from typing import Any

from widenet.training.log_curves import FITS
from widenet.training.run_files import objects


def without_fits(lines: Sequence[bytes]) -> bytes:
    """Return lines of log.jsonl, the last one without fits: a training that resumes makes them again."""
    last: dict[str, Any] = next(objects(lines[-1:]), {})
    if FITS not in last:
        return b"".join(lines)
    kept = {name: value for name, value in last.items() if name != FITS}
    return b"".join([*lines[:-1], f"{json.dumps(kept)}\n".encode()])
