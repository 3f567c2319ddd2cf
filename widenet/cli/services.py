"""`widenet serve` and `widenet ui`."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from widenet.cli.declared import values_of, with_flags_of
from widenet.serve.serve_arguments import ServeArguments
from widenet.ui.site_arguments import UiArguments


@with_flags_of(ServeArguments)
def serve(**words: Any) -> None:
    """Answer requests for recommendations over HTTP.

    Example: widenet serve RUN --data DATA, then POST {"items": ["42"], "k": 5} to /v1/recommend.

    A newer model of the run replaces the one that answers, between two batches.
    SIGTERM and Ctrl-C end the service after the last answer.
    """
    from widenet.late_imports import optional

    arguments = ServeArguments(**values_of(ServeArguments, words))
    with suppress(KeyboardInterrupt):  # SIGTERM while it starts
        with optional("starlette", "serve"):
            from widenet.serve.service import serve as run

        run(arguments, lambda url: typer.echo(f"Serving {arguments.run} at {url}", err=True))


@with_flags_of(UiArguments)
def ui(**words: Any) -> None:
    """Show runs in a browser: tables, curves, networks and data, also while they train.

    Example: widenet ui runs, then open http://127.0.0.1:8001/.

    Without --allow-training the pages change nothing on disk. SIGTERM and Ctrl-C end them; trainings that
    they have started go on.
    """
    from widenet.late_imports import optional

    arguments = UiArguments(**values_of(UiArguments, words))
    with suppress(KeyboardInterrupt):
        with optional("starlette", "serve"):
            from widenet.ui.start_site import serve as run

        run(
            arguments, lambda url: typer.echo(f"Showing {arguments.folder} at {url}", err=True), train_command
        )


def train_command(documents: Sequence[Path], data: Path, out: Path) -> list[str]:
    """Return the words that train a run."""
    words = [*map(str, documents), "--data", str(data), "--out", str(out)]
    return [sys.executable, "-m", "widenet", "train", *words]
