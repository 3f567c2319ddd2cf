"""`widenet data ingest`: raw interactions, whatever they are written in."""

from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer
from typer import Option

from widenet.cli.dataset import show
from widenet.cli.options import pairs
from widenet.cli.progress import IngestReport

if TYPE_CHECKING:
    from widenet.data.options import Options
    from widenet.data.selection import Duplicates


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line says of an ingest: the command's parameters."""

    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files of interactions, patterns of such, - for standard input, or NetCDF files of DSSTNE.",
        ),
    ]
    out: Annotated[Path, Option(help="The dataset directory to make.")]
    user: Annotated[str | None, Option(help="Column of the user. Guessed where it has an obvious name.")] = (
        None
    )
    item: Annotated[str | None, Option(help="Column of the item. Guessed where it has an obvious name.")] = (
        None
    )
    value: Annotated[
        str | None, Option(help="Column of a number for each interaction, such as a rating.")
    ] = None
    time: Annotated[
        str | None, Option(help="Column of the time; the last of repeated interactions counts.")
    ] = None
    min_value: Annotated[
        float | None, Option(help="Keep interactions of at least this value; they then count as plain ones.")
    ] = None
    keep_values: Annotated[
        bool, Option("--keep-values", help="Store values that --min-value has filtered.")
    ] = False
    keep_times: Annotated[
        bool, Option("--keep-times", help="Store times, so that `data split` can set the last items aside.")
    ] = False
    users: Annotated[str | None, Option(help="File of users, for --sparse, --dense and --weight.")] = None
    users_id: Annotated[str | None, Option(help="Its column of the user's id.")] = None
    users_format: Annotated[str | None, Option(help="Its format; as --format.")] = None
    users_delimiter: Annotated[str | None, Option(help="What separates its columns; as --delimiter.")] = None
    users_header: Annotated[
        bool | None, Option("--users-header/--no-users-header", help="Whether line 1 names its columns.")
    ] = None
    users_columns: Annotated[str | None, Option(help="Names for its columns; as --columns.")] = None
    users_decimal: Annotated[str | None, Option(help="What stands before decimals in it; as --decimal.")] = (
        None
    )
    sparse: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=COLUMN",
            help="A further sparse field: the users' categories in a column, of --users or of the sources.",
        ),
    ] = None
    dense: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=COLUMN,COLUMN", help="A further dense field: the numbers in columns of --users."
        ),
    ] = None
    weight: Annotated[str | None, Option(help="Column of --users: how much a user counts in the loss.")] = (
        None
    )
    titles: Annotated[str | None, Option(help="File that names the items.")] = None
    title_id: Annotated[str | None, Option(help="Its column of the item's id.")] = None
    title: Annotated[str | None, Option(help="Its column of the title.")] = None
    titles_format: Annotated[str | None, Option(help="Its format; as --format.")] = None
    titles_delimiter: Annotated[str | None, Option(help="What separates its columns; as --delimiter.")] = None
    titles_header: Annotated[
        bool | None, Option("--titles-header/--no-titles-header", help="Whether line 1 names its columns.")
    ] = None
    titles_columns: Annotated[str | None, Option(help="Names for its columns; as --columns.")] = None
    vocabulary: Annotated[
        Path | None,
        Option(
            metavar="RUN|DIR",
            help="Keep the features of a run or a dataset at their indices; leave others out and count them.",
        ),
    ] = None
    grow: Annotated[bool, Option("--grow", help="Append the features that --vocabulary lacks instead.")] = (
        False
    )
    heldout: Annotated[str | None, Option(help="A given test part, for the final evaluation.")] = None
    sequence: Annotated[
        bool,
        Option(
            "--sequence",
            help="Each user has a sequence: every row counts, by --time or else as the sources have them.",
        ),
    ] = False
    heldout_last: Annotated[
        str | None,
        Option(
            metavar="N|DURATION",
            help="Set each user's last N items, or all of the last 7d, aside for the final evaluation.",
        ),
    ] = None
    heldout_since: Annotated[
        str | None, Option(metavar="TIME", help="Set aside what is from then on, for the final evaluation.")
    ] = None
    validation_last: Annotated[
        str | None, Option(metavar="N|DURATION", help="As --heldout-last, of what is left, for validation.")
    ] = None
    validation_since: Annotated[
        str | None, Option(metavar="TIME", help="As --heldout-since, of what is left, for validation.")
    ] = None
    duplicates: Annotated[
        str | None,
        Option(
            help=(
                "What counts of repeated interactions: last or first (by --time), max, sum, or error. last if"
                " there is --time, else max."
            )
        ),
    ] = None
    since: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help=(
                "Keep times from then on: a number, a date such as 2024-05-01, or '7 days' before the newest."
            ),
        ),
    ] = None
    until: Annotated[str | None, Option(metavar="TIME", help="Keep times before this one.")] = None
    min_user_items: Annotated[int, Option(metavar="N", help="Keep users of at least N items.")] = 0
    min_item_users: Annotated[
        int, Option(metavar="N", help="Keep items of at least N users; both until nothing changes.")
    ] = 0
    file_format: Annotated[
        str | None,
        Option(
            "--format",
            help=(
                "csv, parquet, adjacency, sessions, jsonl, dsstne or npz. Known by suffix and content, but"
                " for sessions."
            ),
        ),
    ] = None
    delimiter: Annotated[
        str | None, Option(help="What separates the columns of CSV: up to 4 bytes, tab or space. Guessed.")
    ] = None
    header: Annotated[
        bool | None, Option("--header/--no-header", help="Whether line 1 of CSV names the columns. Guessed.")
    ] = None
    columns: Annotated[
        str | None,
        Option(help="Names for the columns of CSV without a header, such as user,item,value,time."),
    ] = None
    decimal: Annotated[
        str | None,
        Option(help="What stands before decimals in CSV: a comma, or a point, which is meant if not given."),
    ] = None
    time_format: Annotated[
        str | None,
        Option(
            metavar="FORMAT",
            help="How --time is written, as in '%d/%m/%Y %H:%M:%S'. Numbers and ISO dates need none.",
        ),
    ] = None
    skip_bad_lines: Annotated[int, Option(metavar="N", help="Leave out up to N lines that break a rule.")] = 0
    field: Annotated[str, Option(help="Name of the dataset's field.")] = "items"
    name: Annotated[
        str | None, Option(help="Name of the dataset; that of the first source if not given.")
    ] = None
    memory: Annotated[
        str | None,
        Option(
            help=(
                "What the whole process may take, such as 8GB; beyond it, disk is used. A quarter of what is"
                " left, if not given."
            )
        ),
    ] = None

    def options(self, report: IngestReport) -> "Options":
        """The same for the library."""
        from widenet.data.options import Options

        return Options(
            user=self.user,
            item=self.item,
            value=self.value,
            time=self.time,
            min_value=self.min_value,
            keep_values=self.keep_values,
            keep_times=self.keep_times,
            users=self.users,
            users_id=self.users_id,
            users_format=self.users_format,
            users_delimiter=self.users_delimiter,
            users_header=self.users_header,
            users_columns=_names(self.users_columns),
            users_decimal=self.users_decimal,
            sparse=pairs("--sparse", "FIELD=COLUMN", self.sparse or []),
            dense={
                name: listed.split(",")
                for name, listed in pairs("--dense", "FIELD=COLUMN", self.dense or []).items()
            },
            weight=self.weight,
            titles=self.titles,
            title_id=self.title_id,
            title=self.title,
            titles_format=self.titles_format,
            titles_delimiter=self.titles_delimiter,
            titles_header=self.titles_header,
            titles_columns=_names(self.titles_columns),
            vocabulary=self.vocabulary,
            grow=self.grow,
            heldout=self.heldout,
            sequence=self.sequence,
            heldout_last=self.heldout_last,
            heldout_since=self.heldout_since,
            validation_last=self.validation_last,
            validation_since=self.validation_since,
            duplicates=cast("Duplicates | None", self.duplicates),
            since=self.since,
            until=self.until,
            min_user_items=self.min_user_items,
            min_item_users=self.min_item_users,
            format=self.file_format,
            delimiter=self.delimiter,
            header=self.header,
            columns=_names(self.columns),
            decimal=self.decimal,
            time_format=self.time_format,
            skip_bad_lines=self.skip_bad_lines,
            field=self.field,
            name=self.name,
            memory=self.memory,
            on_progress=report.phase,
            on_rows=report.rows,
        )


def ingest(context: typer.Context, **given: Any) -> None:
    """Turn interactions into a dataset directory, whole or not at all."""
    from widenet.cli.dsstne.data import ingest as ingest_netcdf
    from widenet.data.ingest import ingest_with
    from widenet.data.sources import meant
    from widenet.interop.dsstne.signature import is_netcdf

    asked = Asked(**given)
    paths = [path for source in asked.sources for path in meant(Path(source))]
    if any(is_netcdf(path) for path in paths):
        show(asked.out, ingest_netcdf(paths, asked.out, asked.name, context))
        return
    with IngestReport() as report:
        manifest = ingest_with(asked.sources, asked.out, asked.options(report))
    show(asked.out, manifest)


_context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
ingest.__annotations__ |= get_type_hints(Asked, include_extras=True)
ingest.__signature__ = Signature([_context, *signature(Asked).parameters.values()])  # type: ignore[attr-defined]


def _names(text: str | None) -> list[str] | None:
    """The names in a list with commas."""
    return text.split(",") if text else None
