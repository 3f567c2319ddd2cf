"""`widenet data ingest`: raw interactions, whatever they are written in."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.dataset import show
from widenet.cli.options import pairs
from widenet.cli.progress import IngestReport

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE", help="Files of interactions, patterns of such, - for standard input, or NetCDF files of DSSTNE."),
]
Out = Annotated[Path, typer.Option(help="The dataset directory to make.")]
User = Annotated[str | None, typer.Option(help="Column of the user. Guessed where it has an obvious name.")]
Item = Annotated[str | None, typer.Option(help="Column of the item. Guessed where it has an obvious name.")]
Value = Annotated[str | None, typer.Option(help="Column of a number for each interaction, such as a rating.")]
Time = Annotated[str | None, typer.Option(help="Column of the time; the last of repeated interactions counts.")]
MinValue = Annotated[float | None, typer.Option(help="Keep interactions of at least this value; they then count as plain ones.")]
KeepValues = Annotated[bool, typer.Option("--keep-values", help="Store values that --min-value has filtered.")]
Users = Annotated[str | None, typer.Option(help="File of users, for --sparse, --dense and --weight.")]
UsersId = Annotated[str | None, typer.Option(help="Its column of the user's id.")]
Sparse = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=COLUMN", help="A further sparse field: the users' categories in a column, of --users or of the sources."),
]
Dense = Annotated[
    list[str] | None, typer.Option(metavar="FIELD=COLUMN,COLUMN", help="A further dense field: the numbers in columns of --users.")
]
Weight = Annotated[str | None, typer.Option(help="Column of --users: how much a user counts in the loss.")]
Titles = Annotated[Path | None, typer.Option(help="CSV or Parquet file that names the items.")]
TitleId = Annotated[str | None, typer.Option(help="Its column of the item's id.")]
Title = Annotated[str | None, typer.Option(help="Its column of the title.")]
Vocabulary = Annotated[
    Path | None,
    typer.Option(metavar="RUN|DIR", help="Keep the features of a run or a dataset at their indices; leave others out and count them."),
]
Grow = Annotated[bool, typer.Option("--grow", help="Append the features that --vocabulary lacks instead.")]
Heldout = Annotated[str | None, typer.Option(help="A given test part, for the final evaluation.")]
InSequence = Annotated[
    bool, typer.Option("--sequence", help="Each user has a sequence: every row counts, by --time or else as the sources have them.")
]
HeldoutLast = Annotated[int | None, typer.Option(metavar="N", help="Set each user's last N items aside for the final evaluation.")]
HeldoutSince = Annotated[str | None, typer.Option(metavar="TIME", help="Set aside what is from this time on, for the final evaluation.")]
ValidationLast = Annotated[int | None, typer.Option(metavar="N", help="As --heldout-last, of what that leaves, for validation.")]
ValidationSince = Annotated[str | None, typer.Option(metavar="TIME", help="As --heldout-since, of what that leaves, for validation.")]
Duplicates = Annotated[
    str | None,
    typer.Option(
        help="What counts of repeated interactions: last or first (by --time), max, sum, or error. By default last with --time, else max."
    ),
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Keep times from this one on: a number, or a date such as 2024-05-01.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Keep times before this one.")]
MinUserItems = Annotated[int, typer.Option(metavar="N", help="Keep users of at least N items.")]
MinItemUsers = Annotated[int, typer.Option(metavar="N", help="Keep items of at least N users; both until nothing changes.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="csv, parquet, adjacency, sessions, jsonl, dsstne or npz. Known by suffix and content, but for sessions."
    ),
]
Delimiter = Annotated[str | None, typer.Option(help="What separates the columns of CSV: up to 4 bytes, tab or space. Guessed.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether line 1 of CSV names the columns. Guessed.")]
Columns = Annotated[str | None, typer.Option(help="Names for the columns of CSV without a header, such as user,item,value,time.")]
SkipBadLines = Annotated[int, typer.Option(metavar="N", help="Leave out up to so many lines that break a rule.")]
Field = Annotated[str, typer.Option(help="Name of the dataset's field.")]
Name = Annotated[str | None, typer.Option(help="Name of the dataset; that of the first source if not given.")]
Memory = Annotated[
    str | None,
    typer.Option(help="DuckDB's memory, such as 8GB; beyond it, disk is used. A quarter of what is left. Merging: 50 MB a thread more."),
]


def ingest(
    context: typer.Context,
    sources: Sources,
    out: Out,
    user: User = None,
    item: Item = None,
    value: Value = None,
    time: Time = None,
    min_value: MinValue = None,
    keep_values: KeepValues = False,
    users: Users = None,
    users_id: UsersId = None,
    sparse: Sparse = None,
    dense: Dense = None,
    weight: Weight = None,
    titles: Titles = None,
    title_id: TitleId = None,
    title: Title = None,
    vocabulary: Vocabulary = None,
    grow: Grow = False,
    heldout: Heldout = None,
    sequence: InSequence = False,
    heldout_last: HeldoutLast = None,
    heldout_since: HeldoutSince = None,
    validation_last: ValidationLast = None,
    validation_since: ValidationSince = None,
    duplicates: Duplicates = None,
    since: Since = None,
    until: Until = None,
    min_user_items: MinUserItems = 0,
    min_item_users: MinItemUsers = 0,
    file_format: Format = None,
    delimiter: Delimiter = None,
    header: Header = None,
    columns: Columns = None,
    skip_bad_lines: SkipBadLines = 0,
    field: Field = "items",
    name: Name = None,
    memory: Memory = None,
) -> None:
    """Turn interactions into a dataset directory, whole or not at all."""
    options = {name: value for name, value in locals().items() if name != "context"}
    from widenet.cli.dsstne.data import ingest as ingest_netcdf
    from widenet.data.ingest import ingest as run
    from widenet.interop.dsstne.signature import is_netcdf

    if any(is_netcdf(Path(source)) for source in sources):
        show(out, ingest_netcdf([Path(source) for source in sources], out, name, context))
        return

    options["format"] = options.pop("file_format")
    options["sparse"] = pairs("--sparse", "FIELD=COLUMN", sparse or [])
    options["dense"] = {name: listed.split(",") for name, listed in pairs("--dense", "FIELD=COLUMN", dense or []).items()}
    options["columns"] = columns.split(",") if columns else None
    with IngestReport() as report:
        manifest = run(**options, on_progress=report.phase, on_rows=report.rows)
    show(out, manifest)
