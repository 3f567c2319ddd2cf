"""The arguments of a service, each declared once: type, default, bounds and sentence."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from widenet.arguments import Argument, Checked
from widenet.runs.run_arguments import Device, Output

Port = Annotated[int, Argument("Port to listen on; 0: a free one.", at_least=0, at_most=65_535)]
Host = Annotated[
    str, Argument("Address to listen on. Other addresses than this machine's own need `token_file`.")
]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ServeArguments(Checked):
    """The arguments of `widenet serve`."""

    run: Annotated[str | Path, Argument("The run directory that `widenet train` made.", form="RUN")]
    _: KW_ONLY
    data: Annotated[
        str | Path | None, Argument("The dataset directory whose users requests may name by id.")
    ] = None
    port: Port = 8000
    host: Host = LOOPBACK
    token_file: Annotated[
        str | Path | None,
        Argument("File with a token of at least 16 characters, which every request must then carry."),
    ] = None
    allow_host: Annotated[
        Sequence[str],
        Argument("Name under which requests may address the service.", form="NAME", is_repeated=True),
    ] = ()
    device: Device = None
    output: Output = None
    max_batch: Annotated[int, Argument("Largest number of rows that are computed together.", at_least=1)] = 64
    max_delay_ms: Annotated[
        float,
        Argument(
            "Milliseconds that a free model waits at most for as many requests as it had lately.",
            at_least=0,
            at_most=60_000,
        ),
    ] = 10.0
    queue: Annotated[
        int, Argument("Rows that may wait; when they are as many, requests get 503 at once.", at_least=1)
    ] = 1024
    max_wait_ms: Annotated[
        float,
        Argument(
            "Milliseconds that a row should wait at most for its batch: when as many rows wait as the model"
            " answers in this time, requests get 503 at once.",
            at_least=0,
            at_most=3_600_000,
        ),
    ] = 100.0
    deadline_ms: Annotated[
        float,
        Argument(
            "Milliseconds after which a request that has no answer gets 504.", at_least=1, at_most=3_600_000
        ),
    ] = 2000.0
    max_bytes: Annotated[
        int | None,
        Argument(
            "Largest size of a request's body. Default: 1 MiB, or more if dense fields need it.", at_least=1
        ),
    ] = None
