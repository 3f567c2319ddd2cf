"""Folders of data and presets, and temporary folders for work."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
DATA = Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data"))


@contextmanager
def workplace() -> Iterator[Path]:
    """Make a temporary directory."""
    with TemporaryDirectory(prefix="widenet-benchmark-") as folder:
        yield Path(folder)


def presets(folder: str) -> dict[str, tuple[Path, Path]]:
    """Return network and training document of each preset of a data set, by name.

    `network.json` is named "best".
    """
    documents = {}
    for network in sorted((EXAMPLES / folder).glob("*network.json")):
        name = network.name.removesuffix("network.json").strip("-") or "best"
        documents[name] = (network, network.with_name(network.name.replace("network.json", "training.json")))
    return documents
