"""The options of an ingest: their parts for each step of the work, and the checks between them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from widenet.data.database import Limits
from widenet.data.formats.source import Reading
from widenet.data.formats.text import WHITE_SPACE
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.item_columns import Forms
from widenet.data.items import Descriptions, Items
from widenet.data.known import KnownFeatures
from widenet.data.rules import check_field_name
from widenet.data.selection import Selection, ago, check_order, is_date, moment, set_aside
from widenet.data.side_fields import SideFields
from widenet.data.sources import Roles
from widenet.data.titles import Titles
from widenet.errors import OptionError
from widenet.plan.machine import available_threads
from widenet.stores.fetch import readable

_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "space": WHITE_SPACE}


@dataclass(frozen=True, kw_only=True)
class Options(IngestArguments):
    """The options of an ingest as they were given; `check` tells whether they fit together."""

    @cached_property
    def selection(self) -> Selection:
        """The interactions to keep and to set aside."""
        last, start = set_aside(
            self.heldout_last, self.validation_last, self.heldout_since, self.validation_since
        )
        check_order("since", self.since, "until", self.until)
        moments = {
            "since": self.since,
            "until": self.until,
            **{f"{part}_since": value for part, value in start.items()},
        }
        return Selection(
            self.duplicates or ("max" if self.time is None else "last"),
            self.min_value,
            moment("since", self.since, -math.inf),
            moment("until", self.until, math.inf),
            self.min_user_items,
            self.min_item_users,
            self.max_user_items,
            last,
            {part: moment(f"{part}_since", value, 0) for part, value in start.items()},
            self.sequence,
            self.vocabulary is not None and not self.grow,
            [option for option, value in moments.items() if is_date(value)],
            self.keep_times,
            {option: seconds for option, value in moments.items() if (seconds := ago(value)) is not None},
        )

    @cached_property
    def roles(self) -> Roles:
        """The columns of the interactions."""
        return Roles(
            self.user,
            self.item,
            self.value,
            self.time,
            self.min_value is not None and not self._counts_rows,
            (self.time_format,) if isinstance(self.time_format, str) else tuple(self.time_format or ()),
        )

    @cached_property
    def reading(self) -> Reading:
        """Reading options of the files of interactions."""
        reading = _reading("", self.format, self.delimiter, self.header, self.columns, self.roles.named)
        return replace(reading, decimal=self.decimal)

    @cached_property
    def side(self) -> SideFields:
        """The further fields of users."""
        sparse, dense = self.sparse or {}, self.dense or {}
        named = [
            self.users_id,
            self.weight,
            *sparse.values(),
            *(column for columns in dense.values() for column in columns),
        ]
        reading = _reading(
            "users_", self.users_format, self.users_delimiter, self.users_header, self.users_columns, named
        )
        reading = replace(reading, decimal=self.users_decimal)
        return SideFields(self.users, self.users_id, sparse, dense, self.weight, reading)

    @cached_property
    def naming(self) -> Titles:
        """The titles of the items."""
        named = [self.title_id, self.title]
        reading = _reading(
            "titles_",
            self.titles_format,
            self.titles_delimiter,
            self.titles_header,
            self.titles_columns,
            named,
        )
        return Titles(self.titles, self.title_id, self.title, reading)

    @cached_property
    def catalogue(self) -> Items:
        """The items with their attributes."""
        named = [self.items_id, self.items_title]
        reading = _reading(
            "items_",
            self.items_format,
            self.items_delimiter,
            self.items_header,
            self.items_columns,
            named,
        )
        reading = replace(reading, decimal=self.items_decimal)
        forms = Forms(self.items_decimal or ".", self.items_separator, tuple(self.items_booleans or ()))
        has_titles = self.titles is not None
        descriptions = Descriptions(self.items_sparse or {}, self.items_dense or {}, self.normalize)
        return Items(
            self.items,
            self.items_id,
            self.items_title,
            reading,
            has_titles,
            forms,
            descriptions,
        )

    @cached_property
    def known(self) -> KnownFeatures:
        """The vocabularies to keep."""
        return KnownFeatures(None if self.vocabulary is None else readable(self.vocabulary))

    @property
    def has_values(self) -> bool:
        """Whether the dataset stores values."""
        return self.keep_values or ((self.value is not None or self._counts_rows) and self.min_value is None)

    @cached_property
    def limits(self) -> Limits:
        """Limits of memory and threads."""
        return Limits.within(self.memory, available_threads() if self.threads is None else self.threads)

    @property
    def _counts_rows(self) -> bool:
        return self.value is None and self.duplicates == "sum"


def check(options: Options) -> None:
    """Check every option, and that the given ones fit together.

    Raises:
        OptionError: An option is wrong.
        DataError: The name of the field or its vocabulary is wrong.
    """
    check_field_name(options.field)
    selection = options.selection
    if options.sequence and (
        options.keep_values or (options.value is not None and options.min_value is None)
    ):
        raise OptionError("`sequence` stores no values; with it, `value` is for `min_value` alone.")
    if options.sequence and options.duplicates is not None:
        raise OptionError("`sequence` keeps every row, so `duplicates` has no effect.")
    if options.keep_values and not options.roles.numbers and selection.duplicates != "sum":
        raise OptionError("`keep_values` needs `value`.")
    if options.keep_times and options.time is None:
        raise OptionError("`keep_times` needs `time`.")
    if selection.needs_time and options.time is None:
        raise OptionError(f"`{selection.needs_time[0]}` needs `time`.")
    if options.heldout is not None and "heldout" in selection.divided:
        raise OptionError("`heldout` names a test part; `heldout_last` and `heldout_since` make another.")
    if options.grow and options.vocabulary is None:
        raise OptionError("`grow` needs `vocabulary`.")
    options.known.check(options.field)
    _ = options.roles, options.reading, options.limits  # each checks itself when it is made
    _ = options.naming, options.catalogue
    taken = {options.field: "the interactions (`field`)"}
    for option, names in (("`sparse`", options.side.sparse), ("`dense`", options.side.dense)):
        for name in names:
            if name in taken:
                rule = f'must make a field of another name; "{name}" is the name of {taken[name]}'
                raise OptionError(f"{option} {rule}.")
            taken[name] = option


def _reading(
    prefix: str,
    file_format: str | None,
    delimiter: str | None,
    header: bool | None,
    columns: Sequence[str] | None,
    named: Iterable[str | None],
) -> Reading:
    delimiter = None if delimiter is None else _DELIMITER_WORDS.get(delimiter, delimiter)
    names = None if columns is None else tuple(columns)
    return Reading(
        file_format,
        delimiter,
        header,
        names,
        frozenset(name for name in named if name is not None),
        prefix=prefix,
    )
