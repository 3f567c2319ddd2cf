"""Which interactions an ingest keeps, how it merges repeated ones, and which it sets aside by time."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import get_args

from widenet.data.ingest_arguments import Duplicates, Moment
from widenet.data.manifest import Part
from widenet.errors import DataError, OptionError, nearest

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(minutes?|min|m|hours?|h|days?|d|weeks?|w)", re.IGNORECASE)
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LATEST_SECOND = 1e11
"""In the year 5138. Larger numbers are not seconds since 1970, but perhaps milliseconds."""
DIGITS_OF_DAYS = 19_000_101, 21_001_231
"""A number in this range is a day such as 20240501, rather than a second of the year 1970."""


@dataclass(frozen=True)
class Selection:
    """Which interactions to keep and to set aside.

    Attributes:
        duplicates: Which of a user's rows with the same item counts; a sequence ignores it.
        min_value: Smallest value to keep.
        since: Time of the first interactions to keep.
        until: End of the times to keep; it is not kept itself.
        min_user_items: Smallest number of items of a user.
        min_item_users: Smallest number of users of an item. Both minimums repeat until nothing changes.
        max_user_items: Largest number of items of a user, before both minimums; None for any.
        last: For the validation and heldout parts, the number of each user's last items that move there.
        from_time: For the validation and heldout parts, the time from which interactions move there.
        sequence: Whether users have sequences, which keep every row.
        known_only: Whether to drop items that an earlier vocabulary lacks.
        dates: The options that were given as a date or a duration, so that times must be seconds.
        keep_times: Whether to store the times.
        ago: For options that were given as a duration, the seconds before the newest time. Their moments are
            valid after `resolved`.

    Raises:
        OptionError: A rule is wrong.
    """

    duplicates: Duplicates = "max"
    min_value: float | None = None
    since: float = -math.inf
    until: float = math.inf
    min_user_items: int = 0
    min_item_users: int = 0
    max_user_items: int | None = None
    last: Mapping[Part, int] = field(default_factory=dict)
    from_time: Mapping[Part, float] = field(default_factory=dict)
    sequence: bool = False
    known_only: bool = False
    dates: Sequence[str] = ()
    keep_times: bool = False
    ago: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.duplicates not in get_args(Duplicates):
            known = get_args(Duplicates)
            raise OptionError(
                f"`duplicates` must be one of {', '.join(known)}; got"
                f" {self.duplicates!r}.{nearest(self.duplicates, known)}"
            )
        if self.min_value is not None and not math.isfinite(self.min_value):
            raise OptionError(f"`min_value` must be a finite number; got {self.min_value}.")
        for part in self.last:
            if part in self.from_time:
                raise OptionError(f"`{part}_last` and `{part}_since` exclude each other.")

    def resolved(self, latest: float) -> "Selection":
        """The selection with durations before the newest time replaced by moments.

        Raises:
            OptionError: Two moments are in the wrong order.
        """
        at = {option: latest - seconds for option, seconds in self.ago.items()}
        start = {part: at.get(f"{part}_since", moment) for part, moment in self.from_time.items()}
        resolved = replace(
            self,
            since=at.get("since", self.since),
            until=at.get("until", self.until),
            from_time=start,
            ago={},
        )
        ordered = (
            {"since": resolved.since, "until": resolved.until},
            {f"{part}_since": start.get(part) for part in ("validation", "heldout")},
        )
        for (first, earlier), (second, later) in (pair.items() for pair in ordered):
            if self.ago and earlier is not None and later is not None and not earlier < later:
                raise OptionError(
                    f"`{first}` must be before `{second}`; got {earlier:.0f} and {later:.0f}, as seconds"
                    " since 1970."
                )
        return resolved

    def check_seconds(self, latest: float, place: str) -> None:
        """Raise DataError if dates or durations were given, but times are not in seconds.

        Args:
            latest: The newest time.
            place: Start of the message.
        """
        first_day, last_day = DIGITS_OF_DAYS
        if self.dates and (latest > LATEST_SECOND or first_day <= latest <= last_day):
            rule = f"times must be seconds since 1970 if `{self.dates[0]}` is a date or a duration"
            raise DataError(f"{place}: {rule}; got {latest:.0f}.")

    @property
    def drops(self) -> bool:
        """Whether interactions may be dropped, so that users without any are dropped too."""
        return self.min_value is not None or self.has_window or self.has_minimums or self.known_only

    @property
    def has_window(self) -> bool:
        """Whether some times are dropped."""
        return self.since > -math.inf or self.until < math.inf

    @property
    def has_minimums(self) -> bool:
        """Whether users or items with few interactions, or users with many, are dropped."""
        return self.min_user_items > 0 or self.min_item_users > 0 or self.max_user_items is not None

    @property
    def divided(self) -> tuple[Part, ...]:
        """The parts that are taken from the train sources, those that take first before others."""
        parts: tuple[Part, ...] = ("heldout", "validation")
        return tuple(part for part in parts if part in self.last or part in self.from_time)

    @property
    def merges_last(self) -> bool:
        """Whether repeated rows are merged after they are divided, in each part by itself."""
        return bool(self.divided) and not self.sequence

    @property
    def splits_by_time(self) -> list[str]:
        """The options that keep interactions of some times out of training."""
        window = [
            name
            for name, is_given in (("since", self.since > -math.inf), ("until", self.until < math.inf))
            if is_given
        ]
        return [
            *window,
            *(f"{part}_last" for part in self.last),
            *(f"{part}_since" for part in self.from_time),
        ]

    @property
    def needs_time(self) -> list[str]:
        """The given options that need times."""
        if self.sequence:
            return [option for option in self.splits_by_time if not option.endswith("_last")]
        return [
            *self.splits_by_time,
            *([f"duplicates={self.duplicates!r}"] if self.duplicates in ("first", "last") else []),
        ]


def ago(value: object) -> float | None:
    """The seconds of a duration such as "7d" or "2 weeks"; None for anything else.

    A duration means that long before the newest interaction.
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else float(match[1]) * _SECONDS[match[2][0].lower()]


def last_or_ago(option: str, value: int | str | None) -> int | str | None:
    """Return a number of last items as a number, or a duration as it was given.

    Raises:
        OptionError: The value is neither.
    """
    if not isinstance(value, str) or ago(value) is not None:
        return value
    try:
        return int(value)
    except ValueError:
        raise OptionError(
            f"`{option}` must be a whole number, or a duration such as 7d or '12 hours'; got {value!r}."
        ) from None


def is_date(value: Moment | None) -> bool:
    """Whether a moment is a date or a duration rather than a number."""
    try:
        return value is not None and math.isnan(float(value))
    except ValueError:
        return True


def moment(option: str, value: Moment | None, default: float) -> float:
    """Convert a moment to a number: numbers as they are, dates and times to seconds since 1970.

    A time without a time zone is UTC. A duration gives 0, which `Selection.resolved` replaces.

    Args:
        option: Name of the option.
        value: The moment.
        default: Result if there is no moment.

    Raises:
        OptionError: The moment is none of these.
    """
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    if ago(value) is not None:
        return 0.0
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        raise OptionError(
            f"`{option}` must be a number, a date or time such as 2024-05-01, or a duration such as '7 days';"
            f" got {value!r}."
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def check_order(first: str, first_moment: Moment | None, second: str, second_moment: Moment | None) -> None:
    """Raise OptionError if two moments are given and the first is not before the second."""
    if first_moment is None or second_moment is None:
        return
    first_ago, second_ago = ago(first_moment), ago(second_moment)
    if (first_ago is None) != (second_ago is None):
        return  # `Selection.resolved` compares them
    if not (
        moment(first, first_moment, 0) < moment(second, second_moment, 0)
        if first_ago is None or second_ago is None
        else first_ago > second_ago
    ):
        raise OptionError(f"`{first}` must be before `{second}`; got {first_moment} and {second_moment}.")


def set_aside(
    heldout_last: int | str | None,
    validation_last: int | str | None,
    heldout_since: Moment | None,
    validation_since: Moment | None,
) -> tuple[dict[Part, int], dict[Part, Moment]]:
    """Collect what to set aside: numbers of last items, and moments from which interactions move to a part.

    A duration in place of a number moves all interactions of that long before the newest one.

    Returns:
        The number of last items of some parts, and the moment of others.

    Raises:
        OptionError: An option is wrong, or two of them do not fit together.
    """
    last: dict[Part, int] = {}
    start: dict[Part, Moment] = {}
    options: dict[Part, tuple[int | str | None, Moment | None]] = {
        "heldout": (heldout_last, heldout_since),
        "validation": (validation_last, validation_since),
    }
    for part, (number, since) in options.items():
        number = last_or_ago(f"{part}_last", number)
        if number is not None and since is not None:
            raise OptionError(f"`{part}_last` and `{part}_since` exclude each other.")
        if isinstance(number, str) or since is not None:
            start[part] = number if isinstance(number, str) else since if since is not None else 0.0
        elif number is not None and number < 1:
            raise OptionError(f"`{part}_last` must be at least 1; got {number}.")
        elif number is not None:
            last[part] = number
    if len(start) == 2 and heldout_since is None and validation_since is None:
        _check_longer(start["validation"], start["heldout"])
    check_order("validation_since", start.get("validation"), "heldout_since", start.get("heldout"))
    return last, start


def _check_longer(validation: Moment, heldout: Moment) -> None:
    """Raise OptionError unless the duration for validation is longer than the one for heldout."""
    if not (ago(validation) or 0) > (ago(heldout) or 0):
        rule = (
            "`validation_last` must be longer than `heldout_last`, because both count back from the newest"
            " time"
        )
        raise OptionError(f"{rule}; got {validation} and {heldout}.")
