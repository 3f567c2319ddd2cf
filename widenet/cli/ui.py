"""`widenet ui`."""

from typing import Any

import typer

from widenet.cli.declared import values_of, with_flags_of
from widenet.ui.arguments import UiArguments


@with_flags_of(UiArguments)
def ui(**words: Any) -> None:
    """Show runs in a browser: tables, curves, networks, plans and data, also while they train.

    Example: widenet ui runs, then open http://127.0.0.1:8001/.

    The pages change nothing on disk. SIGTERM and Ctrl-C end them.
    """
    from widenet.optional import optional

    arguments = UiArguments(**values_of(UiArguments, words))
    with optional("starlette", "serve"):
        from widenet.ui.service import serve as run

    run(arguments, lambda url: typer.echo(f"Showing {arguments.folder} at {url}", err=True))
