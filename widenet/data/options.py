"""The options of an ingest: their parts for each step of the work, and the checks between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from widenet.data.database import Limits
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.items import Descriptions, Forms, Items, Titles
from widenet.data.known import KnownFeatures
from widenet.data.rules import check_field_name
from widenet.data.selection import Selection, ago, check_order, is_date, moment, set_aside
from widenet.data.source import Reading, Roles
from widenet.data.users import SideFields
from widenet.errors import OptionError
from widenet.plan.machine import available_threads
from widenet.stores.fetch import readable

_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t"}


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
            self.item_separator,
        )

    @cached_property
    def reading(self) -> Reading:
        """Reading options of the files of interactions."""
        return self._reading("", {"user": self.user, "item": self.item})

    @cached_property
    def side(self) -> SideFields:
        """The further fields of users."""
        sparse, dense = self.sparse or {}, self.dense or {}
        named = [self.weight, *sparse.values(), *(column for columns in dense.values() for column in columns)]
        reading = self._reading("users_", {"users_id": self.users_id}, named)
        return SideFields(self.users, self.users_id, sparse, dense, self.weight, reading)

    @cached_property
    def naming(self) -> Titles:
        """The titles of the items."""
        reading = self._reading("titles_", {"title_id": self.title_id, "title": self.title})
        return Titles(self.titles, self.title_id, self.title, reading)

    @cached_property
    def catalogue(self) -> Items:
        """The items with their attributes."""
        sparse, dense = self.items_sparse or {}, self.items_dense or {}
        named = [*sparse.values(), *(column for columns in dense.values() for column in columns)]
        return Items(
            self.items,
            self.items_id,
            self.items_title,
            self._reading("items_", {"items_id": self.items_id, "items_title": self.items_title}, named),
            self.titles is not None,
            Forms(self.items_decimal or ".", self.items_separator, tuple(self.items_booleans or ())),
            Descriptions(sparse, dense, self.normalize),
        )

    def _reading(
        self, prefix: str, roles: Mapping[str, str | None], named: Sequence[str | None] = ()
    ) -> Reading:
        """The reading options with a prefix.

        Args:
            prefix: The prefix.
            roles: See `Reading.roles`.
            named: Further columns that options name.
        """
        names = ("format", "delimiter", "header", "columns", "decimal", "quote", "escape", "comment")
        given: dict[str, Any] = {name: getattr(self, f"{prefix}{name}", None) for name in names}
        given["delimiter"] = _DELIMITER_WORDS.get(given["delimiter"] or "", given["delimiter"])
        given["columns"] = None if given["columns"] is None else tuple(given["columns"])
        return Reading(prefix=prefix, roles=roles, named=frozenset(filter(None, named)), **given)

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
