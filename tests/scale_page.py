"""The example that docs/scale.md carries from one process to Spark: its files, and its lines."""

import runpy
import shlex
from pathlib import Path

from tests.commands import Fence, fences

PAGE = Path(__file__).parent.parent / "docs/scale.md"


def shown() -> list[Fence]:
    """The fenced blocks of the example."""
    example = PAGE.read_text("utf-8").split("\n## An example")[1].split("\n## ")[0]
    return fences(example)


def begin(folder: Path) -> None:
    """Write the files that the example shows into the current directory, and make its data there."""
    for fence in shown():
        if fence.title:
            (folder / fence.title).write_text(fence.body, "utf-8")
    runpy.run_path(str(folder / "make_data.py"), run_name="__main__")


def lines(place: str) -> list[list[str]]:
    """The words of the commands of the one block that names a place."""
    (block,) = [fence.body for fence in shown() if fence.language == "bash" and place in fence.body]
    return [shlex.split(line) for line in block.splitlines()]
