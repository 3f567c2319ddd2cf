"""Small files of a run: written whole, and read without lines that a power cut has damaged."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from widenet.stores.durable import appearing
from widenet.training.checkpoint import writing


def values(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines; skip lines that are not objects, or nest too deeply."""
    return objects(path.read_bytes().splitlines() if path.is_file() else ())


def objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects in JSON lines; see `values`."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            value = json.loads(line.decode("utf-8", errors="replace"))
            if isinstance(value, dict):
                yield value


def write_whole(path: Path, text: bytes) -> None:
    """Replace a file; raises CheckpointError."""
    with writing(path), appearing(path) as file:
        file.write(text)
