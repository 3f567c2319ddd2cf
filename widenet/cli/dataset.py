"""What a person sees of a dataset."""

from pathlib import Path

import typer


def show(path: Path, manifest) -> None:  # type: ignore[no-untyped-def]
    """Say what a dataset holds."""
    typer.echo(f"{path}: {manifest.num_examples:,} users")
    for field in manifest.fields.values():
        parts = ", ".join(f"{count:,} {part}" for part, count in field.num_entries.items())
        typer.echo(f"  {field.name}: {field.width:,} {'features' if field.kind == 'sparse' else 'numbers'}; {parts or 'dense'}")
    for fact, count in manifest.source.items():
        if isinstance(count, int) and not isinstance(count, bool) and count:
            typer.echo(f"  {fact.replace('_', ' ')}: {count:,}")
