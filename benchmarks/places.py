"""Where the data and the presets are, and where the work is done."""

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
    """A directory that goes away afterwards."""
    with TemporaryDirectory(prefix="widenet-benchmark-") as folder:
        yield Path(folder)


def presets(folder: str) -> dict[str, tuple[Path, Path]]:
    """The presets of one data set by name: network and training document.

    `network.json` is the best one, called as its folder.
    """
    found = {}
    for network in sorted((EXAMPLES / folder).glob("*network.json")):
        name = network.name.removesuffix("network.json").strip("-") or "best"
        found[name] = (network, network.with_name(network.name.replace("network.json", "training.json")))
    return found
