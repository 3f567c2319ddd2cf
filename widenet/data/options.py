"""The options of an ingest: their parts for each step of the work, and the checks between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from widenet.data.columns import check_time_format, choose_column
from widenet.data.database import Limits
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.items import Descriptions, Forms, Items, Titles
from widenet.data.known import KnownFeatures
from widenet.data.read import open_source
from widenet.data.rules import check_field_name
from widenet.data.selection import Selection, selection_of
from widenet.data.source import Reading
from widenet.data.users import SideFields
from widenet.errors import OptionError
from widenet.plan.machine import available_threads
from widenet.stores.fetch import readable

_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t"}


_NEEDING = {
    "users": ("sparse", "dense", "weight", "users_id"),
    "titles": ("title_id", "title"),
    "items": (
        "items_id",
        "items_title",
        "items_separator",
        "items_booleans",
        "items_sparse",
        "items_dense",
    ),
}
"""The options that need a source, beside those of how it is read."""


@dataclass(frozen=True, kw_only=True)
class Options(IngestArguments):
    """The options of an ingest as they were given; `check` tells whether they fit together."""

    @cached_property
    def selection(self) -> Selection:
        """The interactions to keep and to set aside."""
        return selection_of(
            self,
            duplicates=self.duplicates or ("max" if self.time is None else "last"),
            min_value=self.min_value,
            min_user_items=self.min_user_items,
            min_item_users=self.min_item_users,
            sequence=self.sequence,
            known_only=self.vocabulary is not None and not self.grow,
            keep_times=self.keep_times,
        )

    @cached_property
    def reading(self) -> Reading:
        """Reading options of the files of interactions."""
        return self.readings[""]

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """Reading options by their prefixes."""
        dense = [column for columns in (self.dense or {}).values() for column in columns]
        described = [column for columns in (self.items_dense or {}).values() for column in columns]
        named: dict[str, tuple[tuple[str, ...], list[str | None]]] = {
            "": (("user", "item"), []),
            "users_": (("users_id",), [self.weight, *(self.sparse or {}).values(), *dense]),
            "titles_": (("title_id", "title"), []),
            "items_": (("items_id", "items_title"), [*(self.items_sparse or {}).values(), *described]),
        }
        return {prefix: self._reading(prefix, *names) for prefix, names in named.items()}

    def _reading(self, prefix: str, roles: Sequence[str], named: Sequence[str | None]) -> Reading:
        """The reading options with a prefix.

        Args:
            prefix: The prefix.
            roles: The options of the columns that a header names.
            named: Further columns that options name.
        """
        names = ("format", "delimiter", "header", "columns", "decimal", "quote", "escape", "comment")
        given: dict[str, Any] = {name: getattr(self, f"{prefix}{name}", None) for name in names}
        given["delimiter"] = _DELIMITER_WORDS.get(given["delimiter"] or "", given["delimiter"])
        given["columns"] = None if given["columns"] is None else tuple(given["columns"])
        columns = {role: getattr(self, role) for role in roles}
        return Reading(prefix=prefix, roles=columns, named=frozenset(filter(None, named)), **given)

    @cached_property
    def forms(self) -> Forms:
        """How the cells of items are written."""
        return Forms(self.items_decimal or ".", self.items_separator, tuple(self.items_booleans or ()))

    @cached_property
    def descriptions(self) -> Descriptions:
        """What to describe items by."""
        return Descriptions(self.items_sparse or {}, self.items_dense or {}, self.normalize)

    def open_users(self, folder: Path) -> SideFields:
        """Open the source of users, if there is one, with a folder for standard input."""
        source = None if self.users is None else open_source(self.users, self.readings["users_"], folder)
        return SideFields(source, self.users_id, self.sparse or {}, self.dense or {}, self.weight)

    def open_titles(self, folder: Path) -> Titles | None:
        """Open the source of titles, if there is one, with a folder for standard input."""
        if self.titles is None:
            return None
        source = open_source(self.titles, self.readings["titles_"], folder)
        return Titles(source, self.title_id, choose_column(source.name, source.columns, "title", self.title))

    def open_items(self, folder: Path) -> Items | None:
        """Open the source of items, if there is one, with a folder for standard input."""
        if self.items is None:
            return None
        source = open_source(self.items, self.readings["items_"], folder)
        has_titles = self.titles is not None
        return Items(source, self.items_id, self.items_title, has_titles, self.forms, self.descriptions)

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
    if options.keep_values and not options.numbers and selection.duplicates != "sum":
        raise OptionError("`keep_values` needs `value`.")
    if options.time_format is not None:
        check_time_format(options.time_format)
        if options.time is None:
            raise OptionError("needs `time`", option="time_format")
    if options.keep_times and options.time is None:
        raise OptionError("`keep_times` needs `time`.")
    if selection.needs_time and options.time is None:
        raise OptionError(f"`{selection.needs_time[0]}` needs `time`.")
    if options.heldout is not None and "heldout" in selection.divided:
        raise OptionError("`heldout` names a test part; `heldout_last` and `heldout_since` make another.")
    if options.grow and options.vocabulary is None:
        raise OptionError("`grow` needs `vocabulary`.")
    options.known.check(options.field)
    _check_sources(options)


def _check_sources(options: Options) -> None:
    """Check the options of users, titles and items, and the names of the further fields."""
    # Each checks itself when it is made.
    _ = options.limits, options.forms, options.descriptions
    for source, needing in _NEEDING.items():
        given = [name for name in needing if getattr(options, name)] + options.readings[f"{source}_"].given
        if given and getattr(options, source) is None:
            raise OptionError(f"needs `{source}`", option=given[0])
    if options.titles is not None and options.items_title is not None:
        raise OptionError("does not go with `titles`, which has them", option="items_title")
    taken = {options.field: "the interactions (`field`)"}
    for option in ("sparse", "dense"):
        for name in getattr(options, option) or ():
            check_field_name(name)
            if name in taken:
                rule = f'must make a field of another name; "{name}" is the name of {taken[name]}'
                raise OptionError(rule, option=option)
            taken[name] = f"`{option}`"
