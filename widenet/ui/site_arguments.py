"""The arguments of the pages about runs, each declared once: type, default, bounds and sentence."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from widenet.arguments import Argument, Checked
from widenet.serve.serve_arguments import LOOPBACK, Host, Port


@dataclass(frozen=True)
class UiArguments(Checked):
    """The arguments of `widenet ui`."""

    folder: Annotated[str | Path, Argument("The folder that holds the runs, at any depth.", form="FOLDER")]
    _: KW_ONLY
    port: Port = 8001
    host: Host = LOOPBACK
    token_file: Annotated[
        str | Path | None,
        Argument("File with a token of at least 16 characters, which the pages then ask for."),
    ] = None
    allow_host: Annotated[
        Sequence[str],
        Argument("Name under which browsers may address the pages.", form="NAME", is_repeated=True),
    ] = ()
    allow_training: Annotated[bool, Argument("Let the pages start and stop trainings, one at a time.")] = (
        False
    )
    datasets: Annotated[
        str | Path | None,
        Argument("Folder whose datasets new trainings may use, beside those of the runs."),
    ] = None
