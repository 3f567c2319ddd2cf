"""Options that several commands have, and options of the form NAME=VALUE."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from widenet.errors import OptionError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory that `widenet train` made.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; cuda is taken where there is one.")]
CudaGraph = Annotated[
    bool,
    typer.Option(
        "--cuda-graph", help="On CUDA, record a step once and replay it; never run on a device yet."
    ),
]
Output = Annotated[str | None, typer.Option(help="The output layer, where the network has several.")]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Let items appear that the user is known to have.")
]
IndexFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[SET=]FILE",
        help="Index file that names the features: of all sparse data sets, or SET=FILE of one.",
    ),
]


def pairs(option: str, form: str, given: Sequence[str]) -> dict[str, str]:
    """What is given by name, in order; raises OptionError for a text that has not the form, and for a name
    that stands twice.

    form: "FIELD=COLUMN", for the message; what stands left of it is the name.
    """
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name and sign and value) or name in found:
            raise OptionError(
                f"{option} must be {form}, each {form.partition('=')[0].lower()} once; got {text!r}."
            )
        found[name] = value
    return found


def index_files(given: Sequence[str]) -> dict[str, Path] | Path | None:
    """The index files by data set, or the one of all; raises OptionError where both forms are mixed."""
    plain = [Path(text) for text in given if "=" not in text]
    if plain and len(given) > 1:
        listed = ", ".join(given)
        raise OptionError(
            f"--features must be one file for all data sets, or SET=FILE for each; got {listed}. Name the"
            " data sets."
        )
    if plain:
        return plain[0]
    return {name: Path(path) for name, path in pairs("--features", "SET=FILE", given).items()} or None
