"""Results as JSON: one document on standard output, and nothing beside it."""

import json
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(result: Any) -> None:
    """Print a result as JSON with unrounded numbers; a number that is not finite becomes null."""
    typer.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False, indent=2))


def _plain(value: Any) -> Any:
    """Return what JSON can hold of a value."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value
