"""`widenet data`: makes, splits, describes and verifies dataset directories."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import values_of, with_flags_of
from widenet.cli.output import AsJson, aligned, print_result
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.split import SplitArguments
from widenet.errors import OptionError
from widenet.runs.progress import IngestReport
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from widenet.data.manifest import Manifest


def show(path: Path, manifest: "Manifest", made: bool = True, as_json: bool = False) -> None:
    """Print the size of a dataset, and, if it was just made, the counts of its ingest."""
    facts = summary(path, manifest)
    print_result(as_json, facts, *_lines(facts, manifest, made))


def _show_several(manifests: "Mapping[Path, Manifest]", as_json: bool) -> None:
    """Print the sizes of datasets that were made together, by path."""
    several = [summary(path, manifest) for path, manifest in manifests.items()]
    listed = zip(several, manifests.values(), strict=True)
    lines = [line for facts, manifest in listed for line in _lines(facts, manifest, made=False)]
    print_result(as_json, several, *lines)


def _lines(facts: dict[str, Any], manifest: "Manifest", made: bool) -> "Iterator[str]":
    """The size of a dataset in lines of text, from its `summary`."""
    from widenet.data.described import lines_of

    yield f"{facts['path']}: {manifest.num_examples:,} {manifest.words.examples}"
    for name, field in facts["fields"].items():
        parts = ", ".join(f"{count:,} {part}" for part, count in field["entries"].items())
        yield f"  {name}: {_width(field['kind'], field['width'])}; {parts or 'dense'}"
        yield from (f"    described by {line}" for line in lines_of(field.get("descriptions", {})))
    for fact, count in manifest.source.items() if made else ():
        if isinstance(count, int) and not isinstance(count, bool) and count:
            yield f"  {fact.replace('_', ' ')}: {count:,}"


def _width(kind: str, width: int) -> str:
    """Number of features of a field, or of numbers in each row of a dense one."""
    return f"{width:,} {'distinct' if kind != 'dense' else 'number' if width == 1 else 'numbers'}"


def summary(path: Path, manifest: "Manifest") -> dict[str, Any]:
    """The size of a dataset and how it was made, for JSON."""
    from widenet.data.described import Described, described_file

    fields: dict[str, dict[str, Any]] = {}
    for name, field in manifest.fields.items():
        fields[name] = {"kind": field.kind, "width": field.width, "entries": field.num_entries}
        file = path / described_file(name)
        if field.described and file.is_file():
            fields[name]["descriptions"] = Described.open(file, field.width).facts
    size = {"path": shown(path), "num_examples": manifest.num_examples}
    return size | {"fields": fields, "source": manifest.source}


def _description(path: Path, described: dict[str, Any]) -> "Iterator[str]":
    """The description of a dataset in lines of text, by field and part."""
    from widenet.data.described import lines_of
    from widenet.data.words import words_of

    words = words_of(described["fields"], described["source"])
    weights = ", with weights" if described["has_weights"] else ""
    yield f"{shown(path)}: {described['num_examples']:,} {words.examples}{weights}"
    for name, field in described["fields"].items():
        values = f", values {field['min_value']:g} to {field['max_value']:g}" if field["has_values"] else ""
        titles = f", {field['titles']:,} titles" if "titles" in field else ""
        yield f"{name}: {field['kind']}, {_width(field['kind'], field['width'])}{titles}{values}"
        if kinds := field.get("attributes"):
            yield f"  attributes: {', '.join(f'{each} ({kind})' for each, kind in kinds.items())}"
        yield from (f"  described by {line}" for line in lines_of(field.get("descriptions", {})))
        for part, facts in field["parts"].items():
            yield f"  {part}: {facts['entries']:,} entries, density {facts['density']:.3%}"
            spreads = {words.example: facts["activity"], words.feature(name): facts["popularity"]}
            rows = [["entries per", "mean", *facts["activity"]["quantiles"], "top 1 %", "top 10 %", "Gini"]]
            for what, spread in spreads.items():
                numbers = [f"{spread['mean']:.1f}", *(f"{each:,}" for each in spread["quantiles"].values())]
                tops = [f"{spread[each]:.1%}" for each in ("top_1_percent", "top_10_percent")]
                rows.append([what, *numbers, *tops, f"{spread['gini']:.3f}"])
            yield from (f"    {line}" for line in aligned(rows))


_Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files of interactions, patterns of files, or - for standard input.",
    ),
]
_Out = Annotated[Path, IN_STORES, typer.Option(help="The dataset directory to make.")]


@with_flags_of(IngestArguments)
def ingest(sources: _Sources, out: _Out, as_json: AsJson = False, **words: Any) -> None:
    """Make a dataset directory from interactions, completely or not at all."""
    from widenet.data.ingest import Options, ingest_with

    with IngestReport() as report:
        words = values_of(IngestArguments, words) | {"on_progress": report.phase, "on_rows": report.rows}
        manifest = ingest_with(Options(sources, out, **words))
    show(out, manifest, as_json=as_json)


def fetch(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The data to fetch; --list shows the names.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The dataset directory to make.")] = None,
    min_value: Annotated[
        float | None,
        typer.Option(
            help="Keep ratings of at least this value; 0.5 keeps all of MovieLens. Default: 4 where there are"
            " ratings."
        ),
    ] = None,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept the licence without a question.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier dataset.")] = False,
    show_names: Annotated[bool, typer.Option("--list", help="Show the names of all published data.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download published data once, and make a dataset directory from it.

    The command shows the licence first, which you must accept.
    """
    from widenet.data.published import Published, published
    from widenet.data.published import fetch as run

    if show_names:
        known = [{"name": each.name, "about": each.about} for each in published().values()]
        print_result(as_json, known, *(f"{each['name']:<16}{each['about']}" for each in known))
        return
    if name is None or out is None:
        raise OptionError(
            "and `out` must be named" if name is None else "must be named",
            option="name" if name is None else "out",
        )
    data = Published.find(name)
    if min_value is not None:
        data = data.with_min_value(min_value)
    typer.echo(f"{data.about}\nLicence: {data.licence.strip()}", err=True)
    if not accept_licence:
        if not sys.stdin.isatty():
            raise OptionError("must be accepted, by `accept_licence`", place=f"the licence of {name}")
        if not typer.confirm("Do you accept it?", err=True):
            raise OptionError("was not accepted; nothing was read", place=f"the licence of {name}")
    with IngestReport() as report:
        made = run(
            data, out, overwrite=overwrite, say=report.phase, on_bytes=report.bytes, on_rows=report.rows
        )
    show(out, made.manifest, as_json=as_json)


def extreme(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="The file of training points.")],
    out: Annotated[Path, typer.Option(help="The dataset directory to make from them.")],
    test: Annotated[Path | None, typer.Option(help="The file of test points.")] = None,
    test_out: Annotated[
        Path | None, typer.Option(help="The dataset directory to make from the test points.")
    ] = None,
    filter_pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of pairs of a test point and a label that evaluations leave out.",
        ),
    ] = None,
    labels: Annotated[str, typer.Option(help="Name of the field of labels.")] = "labels",
    features: Annotated[str, typer.Option(help="Name of the field of features.")] = "features",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace earlier datasets, both once the new ones are whole.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make datasets from the sparse text of the Extreme Classification Repository."""
    from widenet.data.extreme import ingest_extreme

    made = ingest_extreme(
        train,
        out,
        test=test,
        test_out=test_out,
        filter_pairs=filter_pairs,
        labels=labels,
        features=features,
        overwrite=overwrite,
    )
    _show_several({dataset.path: dataset.manifest for dataset in made if dataset is not None}, as_json)


app = typer.Typer(help="Make, split and describe datasets.", no_args_is_help=True, rich_markup_mode=None)

app.command("ingest")(ingest)
app.command("fetch")(fetch)
app.command("extreme")(extreme)


@app.command("split")
@with_flags_of(SplitArguments)
def split(as_json: AsJson = False, **words: Any) -> None:
    """Set aside a random share of each user's items, the last items, or whole users."""
    from widenet.data.manifest import Manifest
    from widenet.data.split import split as run

    manifests = {words["out"]: run(**words).manifest}
    if (users_out := words["users_out"]) is None:
        show(words["out"], manifests[words["out"]], made=False, as_json=as_json)
    else:
        _show_several(manifests | {users_out: Manifest.read(users_out)}, as_json)


@app.command("describe")
def describe(
    source: Annotated[Path, IN_STORES, typer.Argument(metavar="DIR", help="The dataset to describe.")],
    as_json: AsJson = False,
) -> None:
    """Describe a dataset: its size, its density and the distribution of its interactions."""
    from widenet.data.describe import describe as run

    described = run(source)
    print_result(as_json, described, *_description(source, described))


@app.command("verify")
def verify(
    source: Annotated[Path, IN_STORES, typer.Argument(metavar="DIR", help="The dataset to check.")],
    as_json: AsJson = False,
) -> None:
    """Read every file of a dataset, and check its checksum and content."""
    from widenet.data.contents import verify as read_and_check
    from widenet.data.manifest import Manifest
    from widenet.stores.folders import readable

    folder = readable(source, "dataset")
    manifest = Manifest.read(folder)
    read_and_check(folder, manifest)
    show(source, manifest, made=False, as_json=as_json)
    typer.echo("Every checksum and every rule holds.", err=as_json)
