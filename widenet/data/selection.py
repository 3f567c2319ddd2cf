"""Which interactions an ingest keeps, what becomes of repeated ones, and which are set aside by their time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from widenet.data.manifest import Part
from widenet.errors import OptionError, did_you_mean

Duplicates = Literal["last", "first", "max", "sum", "error"]
Moment = float | str
"""A number, or an ISO date or time."""
LATEST_SECOND = 1e11
"""Of the year 5138: numbers beyond it are no seconds since 1970, but perhaps milliseconds."""
DIGITS_OF_DAYS = 19_000_101, 21_001_231
"""Between these a number is a day such as 20240501, rather than a second of the year 1970."""


@dataclass(frozen=True)
class Selection:
    """What is kept of interactions; raises OptionError for a rule that is wrong.

    duplicates: which of a user's rows with one item counts. min_value: the least value that stays.
    since, until: times from the first on, and before the second, stay.
    min_user_items, min_item_users: users of fewer items and items of fewer users go, until none is left that must go.
    dates: the options that were given as a date, which means seconds.
    known_only: items that an earlier vocabulary lacks go too.
    sequence: users have sequences, in which every row stays; then `duplicates` means nothing.
    last, from_time: for the parts validation and heldout, how many of each user's last items move there, or from which time on.
    """

    duplicates: Duplicates = "max"
    min_value: float | None = None
    since: float = -math.inf
    until: float = math.inf
    min_user_items: int = 0
    min_item_users: int = 0
    last: Mapping[Part, int] = field(default_factory=dict)
    from_time: Mapping[Part, float] = field(default_factory=dict)
    sequence: bool = False
    known_only: bool = False
    dates: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.duplicates not in get_args(Duplicates):
            known = get_args(Duplicates)
            raise OptionError(
                f"--duplicates must be one of {', '.join(known)}; got {self.duplicates!r}.{did_you_mean(self.duplicates, known)}"
            )
        if self.min_value is not None and not math.isfinite(self.min_value):
            raise OptionError(f"--min-value must be a finite number; got {self.min_value}.")
        least = {"--min-user-items": self.min_user_items, "--min-item-users": self.min_item_users}
        for option, number in {**least, **{f"--{part}-last": number for part, number in self.last.items()}}.items():
            if number < 0:
                raise OptionError(f"{option} must be at least 0; got {number}.")
        for part in self.last:
            if part in self.from_time:
                raise OptionError(f"--{part}-last and --{part}-since exclude each other. Give one of them.")

    @property
    def drops(self) -> bool:
        """Whether interactions may go, so that users without any are not kept either."""
        return self.min_value is not None or self.has_window or self.has_minimums or self.known_only

    @property
    def has_window(self) -> bool:
        """Whether some times are left out."""
        return self.since > -math.inf or self.until < math.inf

    @property
    def has_minimums(self) -> bool:
        """Whether small users or items are left out."""
        return self.min_user_items > 0 or self.min_item_users > 0

    @property
    def divided(self) -> tuple[Part, ...]:
        """The parts that are made of the sources of the train part, those that take first before others."""
        parts: tuple[Part, ...] = ("heldout", "validation")
        return tuple(part for part in parts if part in self.last or part in self.from_time)

    @property
    def splits_by_time(self) -> list[str]:
        """The options that keep the interactions of some times from training."""
        window = [name for name, is_given in (("--since", self.since > -math.inf), ("--until", self.until < math.inf)) if is_given]
        return [*window, *(f"--{part}-last" for part in self.last), *(f"--{part}-since" for part in self.from_time)]

    @property
    def needs_time(self) -> list[str]:
        """The options that were given and mean nothing without a time."""
        if self.sequence:
            return [option for option in self.splits_by_time if not option.endswith("-last")]
        return [*self.splits_by_time, *([f"--duplicates {self.duplicates}"] if self.duplicates in ("first", "last") else [])]


def is_date(given: Moment | None) -> bool:
    """Whether a moment is no number."""
    try:
        return given is not None and math.isnan(float(given))
    except ValueError:
        return True


def moment(option: str, given: Moment | None, absent: float) -> float:
    """A number, or the seconds since 1970 of an ISO date or time, taken as UTC where it names no zone; raises OptionError."""
    if given is None:
        return absent
    try:
        number = float(given)
    except ValueError:
        number = math.nan
    if not math.isnan(number):
        return number
    try:
        read = datetime.fromisoformat(str(given))
    except ValueError:
        raise OptionError(f"{option} must be a number, or a date or time such as 2024-05-01; got {given!r}.") from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def check_order(first: str, given: Moment | None, second: str, then: Moment | None) -> None:
    """Raise OptionError unless the moment of the first option, if both are given, is before that of the second."""
    if given is not None and then is not None and not moment(first, given, 0) < moment(second, then, 0):
        raise OptionError(f"{first} must be before {second}; got {given} and {then}.")
