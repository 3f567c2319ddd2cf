"""The arguments of the pages about runs, each declared once: type, default, bounds and sentence."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from widenet.arguments import Argument, check_bounds


@dataclass(frozen=True)
class UiArguments:
    """The arguments of `widenet ui`."""

    folder: Annotated[str | Path, Argument("The folder that holds the runs, at any depth.", form="FOLDER")]
    _: KW_ONLY
    data: Annotated[
        str | Path | None,
        Argument("The dataset directory to show. Default: the one that each run was trained on."),
    ] = None
    port: Annotated[int, Argument("Port to listen on; 0: a free one.", at_least=0, at_most=65_535)] = 8000
    host: Annotated[
        str, Argument("Address to listen on. Other addresses than this machine's own need `token_file`.")
    ] = "127.0.0.1"
    token_file: Annotated[
        str | Path | None,
        Argument("File with a token of at least 16 characters, which the pages then ask for."),
    ] = None
    allow_host: Annotated[
        Sequence[str],
        Argument("Name under which browsers may address the pages.", form="NAME", is_repeated=True),
    ] = ()

    def __post_init__(self) -> None:
        check_bounds(self)
