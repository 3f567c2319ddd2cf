"""The arguments of an ingest, each said once: its type, its default, its bound and its sentence.

The keywords and the docstring of `widenet.ingest` are made of them, and the flags of `widenet data ingest`.
This module imports no library, because every start of the command line reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from widenet.arguments import Argument, check_bounds
from widenet.data.formats import FORMATS

Duplicates = Literal["last", "first", "max", "sum", "error"]
Moment = float | str
"""A number, an ISO date or time, or a duration before the newest interaction, such as "7 days"."""
OnRows = Callable[[int, int | None], None]
"""Is told how many rows or examples are done, and of how many, or None where that is not known yet."""


@dataclass(frozen=True, kw_only=True)
class IngestArguments:
    """What may be said of an ingest; raises OptionError for a number below its bound.

    on_progress: is told each phase. on_rows: is told, within a phase, how many rows or examples are done, and
        of how many, or None where that is not known yet.
    """

    user: Annotated[str | None, Argument("Column of the user. Guessed where it has an obvious name.")] = None
    item: Annotated[str | None, Argument("Column of the item. Guessed where it has an obvious name.")] = None
    value: Annotated[str | None, Argument("Column of a number for each interaction, such as a rating.")] = (
        None
    )
    time: Annotated[str | None, Argument("Column of the time; the last of repeated interactions counts.")] = (
        None
    )
    min_value: Annotated[
        float | None, Argument("Keep interactions of at least this value; they then count as plain ones.")
    ] = None
    keep_values: Annotated[bool, Argument("Store values that `min_value` has filtered.")] = False
    keep_times: Annotated[
        bool, Argument("Store times, so that `data split` can set the last items aside.")
    ] = False
    users: Annotated[Any, Argument("File of users, for `sparse`, `dense` and `weight`.")] = None
    users_id: Annotated[str | None, Argument("Its column of the user's id.")] = None
    users_format: Annotated[str | None, Argument("Its format; as `format`.")] = None
    users_delimiter: Annotated[str | None, Argument("What separates its columns; as `delimiter`.")] = None
    users_header: Annotated[bool | None, Argument("Whether line 1 names its columns.")] = None
    users_columns: Annotated[Sequence[str] | None, Argument("Names for its columns; as `columns`.")] = None
    users_decimal: Annotated[str | None, Argument("What stands before decimals in it; as `decimal`.")] = None
    sparse: Annotated[
        Mapping[str, str] | None,
        Argument(
            "A further sparse field: the users' categories in a column, of `users` or of the sources.",
            form="FIELD=COLUMN",
        ),
    ] = None
    dense: Annotated[
        Mapping[str, Sequence[str]] | None,
        Argument("A further dense field: the numbers in columns of `users`.", form="FIELD=COLUMN,COLUMN"),
    ] = None
    weight: Annotated[str | None, Argument("Column of `users`: how much a user counts in the loss.")] = None
    titles: Annotated[Any, Argument("File that names the items.")] = None
    title_id: Annotated[str | None, Argument("Its column of the item's id.")] = None
    title: Annotated[str | None, Argument("Its column of the title.")] = None
    titles_format: Annotated[str | None, Argument("Its format; as `format`.")] = None
    titles_delimiter: Annotated[str | None, Argument("What separates its columns; as `delimiter`.")] = None
    titles_header: Annotated[bool | None, Argument("Whether line 1 names its columns.")] = None
    titles_columns: Annotated[Sequence[str] | None, Argument("Names for its columns; as `columns`.")] = None
    vocabulary: Annotated[
        Path | str | None,
        Argument(
            "Keep the features of a run or a dataset at their indices; leave others out and count them.",
            form="RUN|DIR",
        ),
    ] = None
    grow: Annotated[bool, Argument("Append the features that `vocabulary` lacks instead.")] = False
    heldout: Annotated[Any, Argument("A given test part, for the final evaluation.")] = None
    sequence: Annotated[
        bool,
        Argument("Each user has a sequence: every row counts, by `time` or else as the sources have them."),
    ] = False
    heldout_last: Annotated[
        int | str | None,
        Argument(
            "Set each user's last N items, or all of the last 7d, aside for the final evaluation.",
            form="N|DURATION",
        ),
    ] = None
    heldout_since: Annotated[
        Moment | None, Argument("Set aside what is from then on, for the final evaluation.", form="TIME")
    ] = None
    validation_last: Annotated[
        int | str | None, Argument("As `heldout_last`, of what is left, for validation.", form="N|DURATION")
    ] = None
    validation_since: Annotated[
        Moment | None, Argument("As `heldout_since`, of what is left, for validation.", form="TIME")
    ] = None
    duplicates: Annotated[
        Duplicates | None,
        Argument(
            "What counts of repeated interactions: last or first (by `time`), max, sum, or error. last if"
            " there is `time`, else max."
        ),
    ] = None
    since: Annotated[
        Moment | None,
        Argument(
            "Keep times from then on: a number, a date such as 2024-05-01, or '7 days' before the newest.",
            form="TIME",
        ),
    ] = None
    until: Annotated[Moment | None, Argument("Keep times before this one.", form="TIME")] = None
    min_user_items: Annotated[int, Argument("Keep users of at least N items.", form="N", at_least=0)] = 0
    min_item_users: Annotated[
        int, Argument("Keep items of at least N users; both until nothing changes.", form="N", at_least=0)
    ] = 0
    format: Annotated[
        str | None,
        Argument(
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}. Known by suffix and content, but for sessions."
        ),
    ] = None
    delimiter: Annotated[
        str | None, Argument("What separates the columns of CSV: up to 4 bytes, tab or space. Guessed.")
    ] = None
    header: Annotated[bool | None, Argument("Whether line 1 of CSV names the columns. Guessed.")] = None
    columns: Annotated[
        Sequence[str] | None,
        Argument("Names for the columns of CSV without a header, such as user,item,value,time."),
    ] = None
    decimal: Annotated[
        str | None,
        Argument("What stands before decimals in CSV: a comma, or a point, which is meant if not given."),
    ] = None
    time_format: Annotated[
        str | None,
        Argument(
            "How `time` is written, as in '%d/%m/%Y %H:%M:%S'. Numbers and ISO dates need none.",
            form="FORMAT",
        ),
    ] = None
    skip_bad_lines: Annotated[
        int, Argument("Leave out up to N lines that break a rule.", form="N", at_least=0)
    ] = 0
    field: Annotated[str, Argument("Name of the dataset's field.")] = "items"
    name: Annotated[str | None, Argument("Name of the dataset; that of the first source if not given.")] = (
        None
    )
    memory: Annotated[
        str | None,
        Argument(
            "What the whole process may take, such as 8GB; beyond it, disk is used. A quarter of what"
            " is left, if not given."
        ),
    ] = None
    threads: int | None = None
    on_progress: Callable[[str], None] | None = None
    on_rows: OnRows | None = None

    def __post_init__(self) -> None:
        check_bounds(self)


def options_for(kind: str, name: str) -> str:
    """The options that make a field of a kind, as messages name them."""
    if kind == "sequence":
        return f"`sequence=True` `field={name!r}`"
    column = repr({name: "COLUMN"})
    return (
        f"`users=FILE` `dense={column}`"
        if kind == "dense"
        else f"`field={name!r}`, or `users=FILE` `sparse={column}`"
    )
