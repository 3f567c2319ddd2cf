"""Summaries of datasets, for the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from widenet.cli.json_output import print_json
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from widenet.data.manifest import Field, Manifest


def show(path: Path, manifest: "Manifest", made: bool = True, as_json: bool = False) -> None:
    """Print the size of a dataset, and, if it was just made, the counts of its ingest."""
    if as_json:
        print_json(summary(path, manifest))
        return
    from widenet.data.described import lines_of

    typer.echo(f"{shown(path)}: {manifest.num_examples:,} {manifest.words.examples}")
    for field in manifest.fields.values():
        parts = ", ".join(f"{count:,} {part}" for part, count in field.num_entries.items())
        typer.echo(f"  {field.name}: {_width(field.kind, field.width)}; {parts or 'dense'}")
        for line in lines_of(_descriptions(path, field)):
            typer.echo(f"    described by {line}")
    for fact, count in manifest.source.items() if made else ():
        if isinstance(count, int) and not isinstance(count, bool) and count:
            typer.echo(f"  {fact.replace('_', ' ')}: {count:,}")


def _width(kind: str, width: int) -> str:
    """Number of features of a field, or of numbers in each row of a dense one."""
    return f"{width:,} {'distinct' if kind != 'dense' else 'number' if width == 1 else 'numbers'}"


def summary(path: Path, manifest: "Manifest") -> dict[str, Any]:
    """The size of a dataset and how it was made, for JSON."""
    fields: dict[str, dict[str, Any]] = {
        field.name: {"kind": field.kind, "width": field.width, "entries": field.num_entries}
        for field in manifest.fields.values()
    }
    for name, field in manifest.fields.items():
        if descriptions := _descriptions(path, field):
            fields[name]["descriptions"] = descriptions
    return {
        "path": shown(path),
        "num_examples": manifest.num_examples,
        "fields": fields,
        "source": manifest.source,
    }


def _descriptions(path: Path, field: "Field") -> dict[str, dict[str, Any]]:
    """Return `Described.facts` of a field in a dataset's directory; empty without descriptions."""
    from widenet.data.described import Described, described_file

    file = path / described_file(field.name)
    return Described.open(file, field.width).facts if field.described and file.is_file() else {}


def show_description(path: Path, described: dict[str, Any]) -> None:
    """Print the description of a dataset, by field and part."""
    weights = ", with weights" if described["has_weights"] else ""
    from widenet.data.described import lines_of
    from widenet.data.words import words_of

    words = words_of(described["fields"], described["source"])
    typer.echo(f"{shown(path)}: {described['num_examples']:,} {words.examples}{weights}")
    for name, field in described["fields"].items():
        values = f", values {field['min_value']:g} to {field['max_value']:g}" if field["has_values"] else ""
        typer.echo(f"{name}: {field['kind']}, {_width(field['kind'], field['width'])}{values}")
        if "titles" in field:
            typer.echo(f"  titles: {format(field['titles'], ',') if field['titles'] else 'none'}")
        if kinds := field.get("attributes"):
            typer.echo(f"  attributes: {', '.join(f'{each} ({kind})' for each, kind in kinds.items())}")
        for line in lines_of(field.get("descriptions", {})):
            typer.echo(f"  described by {line}")
        for part, facts in field["parts"].items():
            typer.echo(f"  {part}: {facts['entries']:,} entries, density {facts['density']:.3%}")
            for title, what in (
                (f"entries per {words.example}", "activity"),
                (f"entries per {words.feature(name)}", "popularity"),
            ):
                spread = facts[what]
                quantiles = ", ".join(f"{share} {count:,}" for share, count in spread["quantiles"].items())
                typer.echo(f"    {title}: mean {spread['mean']:.1f}, {quantiles}")
                top = f"top 1 % have {spread['top_1_percent']:.1%}, top 10 % {spread['top_10_percent']:.1%}"
                typer.echo(f"      {top}, Gini {spread['gini']:.3f}")
