"""Options that several commands have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.declared import option, pairs
from widenet.errors import OptionError
from widenet.runs.arguments import EvaluateArguments, LoadArguments

__all__ = ["Device", "IncludeSeen", "IndexFiles", "Output", "Run", "index_files", "pairs"]

Run = Annotated[Path, option(LoadArguments, "run")]
Device = Annotated[str | None, option(LoadArguments, "device")]
Output = Annotated[str | None, option(EvaluateArguments, "output")]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Also recommend items that the user already has.")
]
IndexFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[SET=]FILE",
        help="Index file with the names of the features, of all sparse data sets; SET=FILE for one.",
    ),
]


def index_files(texts: Sequence[str]) -> dict[str, Path] | Path | None:
    """Read --features: index files by data set, or one file for all; raises OptionError for a mixture."""
    plain = [Path(text) for text in texts if "=" not in text]
    if plain and len(texts) > 1:
        listed = ", ".join(texts)
        raise OptionError(
            f"--features must be one file for all data sets, or SET=FILE for each; got {listed}. Name the"
            " data sets."
        )
    if plain:
        return plain[0]
    return {name: Path(path) for name, path in pairs("--features", "SET=FILE", texts).items()} or None
