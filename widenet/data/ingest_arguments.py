"""The arguments of an ingest, each declared once: its type, default, bound and sentence.

The signature and the docstring of `widenet.ingest` come from them, and the flags of `widenet data ingest`.
This module loads no library, because every start of the command line reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from widenet.arguments import IN_STORES, Argument, check_bounds

FORMATS = ("csv", "parquet", "adjacency", "sessions", "jsonl", "dsstne", "npz")
"""Names of the formats of interactions."""
Duplicates = Literal["last", "first", "max", "sum"]
Moment = float | str
"""A number, an ISO date or time, or a duration before the newest interaction, such as "7 days"."""
OnRows = Callable[[int, int | None], None]
"""Called with the number of rows or examples that are done, and their total; None if it is unknown yet."""


@dataclass(frozen=True)
class IngestArguments:
    """The arguments of `widenet.ingest`; raises OptionError for a number below its bound.

    Attributes:
        threads: Number of threads; None uses all cores.
        on_progress: Called with a sentence at each phase.
        on_rows: Called within a phase with the number of rows or examples that are done, and their total, or
            None if it is unknown yet.
    """

    sources: Annotated[Any, Argument("The interactions: a source, or a list of them.", flag="")]
    out: Annotated[Path | str, IN_STORES, Argument("The dataset directory to make.", flag="")]
    _: KW_ONLY
    user: Annotated[str | None, Argument("Column with the user. Default: one with a usual name.")] = None
    item: Annotated[str | None, Argument("Column with the item. Default: one with a usual name.")] = None
    value: Annotated[str | None, Argument("Column with a number for each interaction, such as a rating.")] = (
        None
    )
    time: Annotated[
        str | None, Argument("Column with the time. Of repeated interactions, the last one counts.")
    ] = None
    min_value: Annotated[
        float | None, Argument("Keep interactions with at least this value, and drop their values.")
    ] = None
    keep_values: Annotated[bool, Argument("With `min_value`, keep the values too.")] = False
    keep_times: Annotated[
        bool, Argument("Store times, so that `data split` can set the last items aside.")
    ] = False
    users: Annotated[Any, Argument("File of users, for `sparse`, `dense` and `weight`.")] = None
    users_id: Annotated[str | None, Argument("Column of `users` with the user's id.")] = None
    users_columns: Annotated[Sequence[str] | None, Argument("Column names for `users`; see `columns`.")] = (
        None
    )
    sparse: Annotated[
        Mapping[str, str] | None,
        Argument(
            "Add a sparse field with the categories in a column of `users`.",
            form="FIELD=COLUMN",
        ),
    ] = None
    dense: Annotated[
        Mapping[str, Sequence[str]] | None,
        Argument("Add a dense field with the numbers in columns of `users`.", form="FIELD=COLUMN,COLUMN"),
    ] = None
    weight: Annotated[str | None, Argument("Column of `users` with the user's weight in the loss.")] = None
    items: Annotated[
        Any, Argument("File of items with their attributes, and perhaps their titles; a row for each item.")
    ] = None
    items_id: Annotated[str | None, Argument("Column of `items` with the item's id.")] = None
    items_title: Annotated[str | None, Argument("Column of `items` with the title.")] = None
    items_columns: Annotated[Sequence[str] | None, Argument("Column names for `items`; see `columns`.")] = (
        None
    )
    items_separator: Annotated[
        str | None,
        Argument("Separator of several texts in a cell of `items`, such as | in Action|Comedy."),
    ] = None
    items_sparse: Annotated[
        Mapping[str, str] | None,
        Argument(
            "Describe items to networks by the categories in a column of `items`. Items without interactions"
            " become features, too.",
            form="[NAME=]COLUMN",
        ),
    ] = None
    items_dense: Annotated[
        Mapping[str, Sequence[str]] | None,
        Argument("As `items_sparse`, by the numbers in columns of `items`.", form="[NAME=]COLUMN,COLUMN"),
    ] = None
    normalize: Annotated[
        bool,
        Argument("Bring the numbers of `items_dense` to mean 0 and deviation 1 over the items of training."),
    ] = False
    titles: Annotated[Any, Argument("File with the titles of the items.")] = None
    title_id: Annotated[str | None, Argument("Column of `titles` with the item's id.")] = None
    title: Annotated[str | None, Argument("Column of `titles` with the title.")] = None
    titles_columns: Annotated[Sequence[str] | None, Argument("Column names for `titles`; see `columns`.")] = (
        None
    )
    vocabulary: Annotated[
        Path | str | None,
        IN_STORES,
        Argument(
            "Keep the features and indices of a run or a dataset. Other items are left out and counted.",
            form="RUN|DIR",
        ),
    ] = None
    grow: Annotated[bool, Argument("With `vocabulary`, append new features instead of leaving them out.")] = (
        False
    )
    heldout: Annotated[Any, Argument("File with the test part, for the final evaluation.")] = None
    sequence: Annotated[
        bool,
        Argument(
            "Store each user's items as a sequence, ordered by `time` or else as in the sources. "
            "Every row counts."
        ),
    ] = False
    heldout_last: Annotated[
        int | None,
        Argument("Set aside each user's last N items, for the final evaluation.", form="N", at_least=1),
    ] = None
    heldout_since: Annotated[
        Moment | None,
        Argument("Set aside interactions from this time on, for the final evaluation.", form="TIME"),
    ] = None
    validation_last: Annotated[
        int | None,
        Argument("As `heldout_last`, from the remaining items, for validation.", form="N", at_least=1),
    ] = None
    validation_since: Annotated[
        Moment | None, Argument("As `heldout_since`, from the remaining items, for validation.", form="TIME")
    ] = None
    duplicates: Annotated[
        Duplicates | None,
        Argument(
            "Which value of repeated interactions counts: last or first (by `time`), max or sum. "
            "Default: last with `time`, else max."
        ),
    ] = None
    since: Annotated[
        Moment | None,
        Argument(
            "Keep interactions from this time on: a number, a date such as 2024-05-01, or '7 days' "
            "before the newest.",
            form="TIME",
        ),
    ] = None
    until: Annotated[Moment | None, Argument("Keep interactions before this time.", form="TIME")] = None
    where: Annotated[
        Mapping[str, Any] | None,
        Argument("Keep rows with one of these values in a column.", form="COLUMN=VALUE"),
    ] = None
    min_user_items: Annotated[int, Argument("Keep users with at least N items.", form="N", at_least=0)] = 0
    min_item_users: Annotated[
        int,
        Argument(
            "Keep items with at least N users. Both rules repeat until nothing changes.", form="N", at_least=0
        ),
    ] = 0
    format: Annotated[
        str | None,
        Argument(
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}. Default: recognized by suffix, or by content except"
            " for lines of words."
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        Argument("Delimiter of CSV: up to 4 bytes, or tab. Default: the only usual one that fits."),
    ] = None
    header: Annotated[
        bool | None,
        Argument(
            "Whether line 1 of CSV names the columns. Default: it does if it has known or named columns."
        ),
    ] = None
    columns: Annotated[
        Sequence[str] | None, Argument("Column names for CSV without a header, such as user,item,value,time.")
    ] = None
    decimal: Annotated[
        str | None, Argument("Decimal separator of CSV: a point, which is the default, or a comma.")
    ] = None
    item_separator: Annotated[
        str | None,
        Argument(
            "Separator of several items in a cell, such as | in a|b. An empty text: each holds one.",
            form="TEXT",
        ),
    ] = None
    quote: Annotated[
        str | None,
        Argument(
            'Character that quotes cells of a table. Default: ". An empty text switches quotes off.',
            form="CHARACTER",
        ),
    ] = None
    escape: Annotated[
        str | None,
        Argument(
            "Character before a quote within a quoted cell. Default: the quote itself.", form="CHARACTER"
        ),
    ] = None
    comment: Annotated[
        str | None,
        Argument(
            "Leave out lines of text that begin with this. An empty text means that none is a comment.",
            form="TEXT",
        ),
    ] = None
    time_format: Annotated[
        str | None,
        Argument(
            "Format of `time`, such as '%d/%m/%Y %H:%M:%S'. Numbers and ISO dates need none.", form="FORMAT"
        ),
    ] = None
    skip_bad_lines: Annotated[
        int, Argument("Skip up to N lines that break a rule.", form="N", at_least=0)
    ] = 0
    field: Annotated[str, Argument("Name of the dataset's field.")] = "items"
    name: Annotated[str | None, Argument("Name of the dataset. Default: the name of the first source.")] = (
        None
    )
    overwrite: Annotated[
        bool, Argument("Replace an earlier dataset at `out`, once the new one is whole.")
    ] = False
    memory: Annotated[
        str | None,
        Argument(
            "Memory limit of the whole process, such as 8GB; beyond it, widenet uses disk. Default:"
            " a quarter of the free memory."
        ),
    ] = None
    threads: int | None = None
    on_progress: Callable[[str], None] | None = None
    on_rows: OnRows | None = None

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def numbers(self) -> list[str]:
        """The columns that are read, of `value` and `time`."""
        needs_value = self.min_value is not None and self.duplicates != "sum"
        return ["value"] * (self.value is not None or needs_value) + ["time"] * (self.time is not None)
