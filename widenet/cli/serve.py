"""`widenet serve`."""

from typing import Any

import typer

from widenet.cli.declared import values_of, with_flags_of
from widenet.cli.wording import say
from widenet.serve.arguments import ServeArguments


@with_flags_of(ServeArguments)
def serve(**words: Any) -> None:
    """Answer requests for recommendations over HTTP.

    Example: widenet serve RUN --data DATA, then POST {"items": ["42"], "k": 5} to /v1/recommend.

    A newer model of the run replaces the one that answers, between two batches.
    SIGTERM and Ctrl-C end the service after the last answer.
    """
    from widenet.optional import optional

    arguments = ServeArguments(**values_of(ServeArguments, words))
    with optional("starlette", "serve"):
        from widenet.serve.service import serve as run

    run(arguments, say, lambda url: typer.echo(f"Serving {arguments.run} at {url}", err=True))
