"""Which interactions an ingest keeps, how it merges repeated ones, and which it sets aside by time."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, get_args

from widenet.arguments import check_choice
from widenet.data.ingest_arguments import Duplicates, Moment
from widenet.data.manifest import Part
from widenet.errors import DataError, OptionError

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(minutes?|min|m|hours?|h|days?|d|weeks?|w)", re.IGNORECASE)
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LATEST_SECOND = 1e11
"""In the year 5138. Larger numbers are not seconds since 1970, but perhaps milliseconds."""
_FIRST_DAY, _LAST_DAY = 19_000_101, 21_001_231
"""A number in this range is a day such as 20240501, rather than a second of the year 1970."""
MOMENTS = ("since", "until", "validation_since", "heldout_since")
"""The options that are moments."""
DIVIDED: tuple[Part, ...] = ("heldout", "validation")
"""The parts that are taken from the train part; the first takes before the other."""


@dataclass(frozen=True)
class Point:
    """A point in time.

    Attributes:
        number: A time as the sources have it, seconds since 1970, or seconds before the newest interaction.
        is_date: Whether times must be seconds since 1970, because it was a date or a duration.
        is_ago: Whether it counts back from the newest interaction.
    """

    number: float
    is_date: bool = False
    is_ago: bool = False

    @classmethod
    def read(cls, option: str, value: Moment) -> "Point":
        """Read a number, a date or time (of UTC unless it names a zone), or a duration such as "7 days".

        Raises:
            OptionError: The value is none of these.
        """
        text = str(value).strip()
        if duration := _DURATION.fullmatch(text):
            return cls(float(duration[1]) * _SECONDS[duration[2][0].lower()], is_date=True, is_ago=True)
        with suppress(ValueError):
            if math.isfinite(number := float(text)):
                return cls(number)
        with suppress(ValueError):
            time = datetime.fromisoformat(text)
            return cls((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp(), is_date=True)
        rule = "must be a number, a date or time such as 2024-05-01, or a duration such as '7 days'"
        raise OptionError(rule, option=option, value=value)

    def is_before(self, other: "Point") -> bool:
        """Whether it is before another point; two that only the newest interaction could order are."""
        if self.is_ago != other.is_ago:
            return True
        return self.number > other.number if self.is_ago else self.number < other.number


@dataclass(frozen=True)
class Selection:
    """Which interactions to keep and to set aside.

    Attributes:
        duplicates: Which of a user's rows with the same item counts; a sequence ignores it.
        min_value: Smallest value to keep.
        min_user_items: Smallest number of items of a user.
        min_item_users: Smallest number of users of an item. Both minimums repeat until nothing changes.
        times: The points of `MOMENTS` that were given.
        last: For the validation and heldout parts, the number of each user's last items that move there.
        sequence: Whether users have sequences, which keep every row.
        known_only: Whether to drop items that an earlier vocabulary lacks.
        keep_times: Whether to store the times.

    Raises:
        OptionError: A rule is wrong.
    """

    duplicates: Duplicates = "max"
    min_value: float | None = None
    min_user_items: int = 0
    min_item_users: int = 0
    times: Mapping[str, Point] = field(default_factory=dict)
    last: Mapping[Part, int] = field(default_factory=dict)
    sequence: bool = False
    known_only: bool = False
    keep_times: bool = False

    def __post_init__(self) -> None:
        check_choice("duplicates", self.duplicates, get_args(Duplicates))
        OptionError.require(
            self.min_value is None or math.isfinite(self.min_value),
            "must be a finite number",
            option="min_value",
            value=self.min_value,
        )
        for part in self.last:
            OptionError.require(
                f"{part}_since" not in self.times, f"excludes `{part}_since`", option=f"{part}_last"
            )
        for first, second in (("since", "until"), ("validation_since", "heldout_since")):
            if {first, second} <= set(self.times) and not self.times[first].is_before(self.times[second]):
                rule = f"must be before `{second}`, {self.times[second].number:.0f}"
                raise OptionError(rule, option=first, value=self.times[first].number)

    def resolved(self, latest: float) -> "Selection":
        """The selection with durations before the newest time replaced by points.

        Raises:
            OptionError: Two points are in the wrong order.
        """
        times = {
            option: Point(latest - point.number, is_date=True) if point.is_ago else point
            for option, point in self.times.items()
        }
        return replace(self, times=times)

    def check_seconds(self, latest: float, place: str) -> None:
        """Raise DataError if dates or durations were given, but times are not in seconds.

        Args:
            latest: The newest time.
            place: The place of the times.
        """
        dates = [option for option, point in self.times.items() if point.is_date]
        if dates and (latest > _LATEST_SECOND or _FIRST_DAY <= latest <= _LAST_DAY):
            rule = f"times must be seconds since 1970 if `{dates[0]}` is a date or a duration"
            raise DataError(rule, place=place, value=latest)

    @property
    def since(self) -> float:
        """Time of the first interactions to keep."""
        return self.times["since"].number if "since" in self.times else -math.inf

    @property
    def until(self) -> float:
        """End of the times to keep; it is not kept itself."""
        return self.times["until"].number if "until" in self.times else math.inf

    @property
    def dropping(self) -> list[str]:
        """The options that drop interactions, so that users without any are dropped too."""
        given = {
            "since": "since" in self.times,
            "until": "until" in self.times,
            "min_value": self.min_value is not None,
            "min_user_items": self.min_user_items > 0,
            "min_item_users": self.min_item_users > 0,
            "vocabulary": self.known_only,
        }
        return [option for option, is_given in given.items() if is_given]

    @property
    def has_window(self) -> bool:
        """Whether some times are dropped."""
        return "since" in self.times or "until" in self.times

    @property
    def has_minimums(self) -> bool:
        """Whether users or items with few interactions are dropped."""
        return self.min_user_items > 0 or self.min_item_users > 0

    @property
    def from_time(self) -> dict[Part, float]:
        """For the validation and heldout parts, the time from which interactions move there."""
        starts = {part: self.times.get(f"{part}_since") for part in DIVIDED}
        return {part: start.number for part, start in starts.items() if start is not None}

    @property
    def divided(self) -> tuple[Part, ...]:
        """The parts that are taken from the train sources, those that take first before others."""
        return tuple(part for part in DIVIDED if part in self.last or part in self.from_time)

    @property
    def merges_last(self) -> bool:
        """Whether repeated rows are merged after they are divided, in each part by itself."""
        return bool(self.divided) and not self.sequence

    @property
    def splits_by_time(self) -> list[str]:
        """The options that keep interactions of some times out of training."""
        return [*self.times, *(f"{part}_last" for part in self.last)]

    @property
    def needs_time(self) -> list[str]:
        """The given options that need times."""
        if self.sequence:
            return list(self.times)
        return [*self.splits_by_time, *(["duplicates"] if self.duplicates in ("first", "last") else [])]


def selection_of(options: Any, **others: Any) -> Selection:
    """Make the selection of options with the attributes `heldout_last`, `validation_last` and `MOMENTS`.

    Args:
        options: The options.
        others: Further attributes of the selection.

    Raises:
        OptionError: An option is wrong.
    """
    last = {part: number for part in DIVIDED if (number := getattr(options, f"{part}_last")) is not None}
    given = {option: getattr(options, option, None) for option in MOMENTS}
    times = {option: Point.read(option, value) for option, value in given.items() if value is not None}
    return Selection(times=times, last=last, **others)
