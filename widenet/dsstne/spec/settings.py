"""Checked access to an object of a DSSTNE document, whose keys ignore case."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from widenet.errors import DocumentError, nearest
from widenet.spec.parts import LONGEST_NAME

_LONGEST = LONGEST_NAME - len(" convolved 99")
_EXACT = 2.0**53
"""Limit below which every whole floating-point number is exact."""


class Names(dict[str, str]):
    """Layers' names by DSSTNE's: without slashes and control characters, and not too long."""

    def __missing__(self, name: str) -> str:
        plain = re.sub(r"[/\\\x00-\x1f]", "_", name)[:_LONGEST]
        taken, numbers = {*self.values()}, count(2)
        self[name] = plain
        while self[name] in taken:
            self[name] = f"{plain} {next(numbers)}"
        return self[name]

    @property
    def notes(self) -> list[str]:
        """A sentence for each name that differs."""
        return [f'The layer "{old}" is called "{new}".' for old, new in self.items() if old != new]


class Settings:
    """An object of a document; `place` is its path, such as "config.json: Layers[1]"."""

    def __init__(self, values: Any, place: str, known: Sequence[str]) -> None:
        DocumentError.require(
            isinstance(values, dict), "must be an object with named fields", place=place, value=values
        )
        self.place = place
        self._values = lowered(values, place)
        spelled = {key.lower(): key for key in known}
        for key in values:
            if key.lower() not in spelled:
                raise DocumentError(
                    f"is not a key of DSSTNE's here.{nearest(key, known)}", place=self._at(key)
                )

    def __contains__(self, key: str) -> bool:
        return key.lower() in self._values

    def _at(self, key: str) -> str:
        return (
            f"{self.place}.{key}"
            if self.place.endswith("]") or ": " in self.place
            else f"{self.place}: {key}"
        )

    def wrong(self, key: str, rule: str) -> DocumentError:
        """Return the error for a key that breaks a rule ("must be ...")."""
        return DocumentError(rule, place=self._at(key), value=self._values.get(key.lower()))

    def require(self, holds: object, key: str, rule: str) -> None:
        """Raise the error for a key unless its rule holds."""
        if not holds:
            raise self.wrong(key, rule)

    def raw(self, key: str) -> Any:
        """Return the value of a key; None if it is absent."""
        return self._values.get(key.lower())

    def number(self, key: str, default: float, low: float | None = None, high: float | None = None) -> float:
        """Return a number from `low` to `high`, both inclusive."""
        value = self._values.get(key.lower(), default)
        self.require(not isinstance(value, bool) and isinstance(value, int | float), key, "must be a number")
        if (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(
                key, f"must be at least {low:g}" if high is None else f"must be from {low:g} to {high:g}"
            )
        return float(value)

    def switch(self, key: str, default: bool) -> bool:
        """Return true or false, which may also be a whole number, as in DSSTNE."""
        value = self._values.get(key.lower(), default)
        self.require(isinstance(value, bool | int), key, "must be true or false")
        return bool(value)

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        value = self._values.get(key.lower(), default)
        self.require(isinstance(value, str), key, "must be text in quotes")
        return str(value)

    def choice(self, key: str, names: Mapping[str, str], default: str) -> str:
        """Return the meaning of a name, ignoring case; `names` has the meanings by DSSTNE's spelling."""
        name = self.text(key, default)
        meaning = {known.lower(): meaning for known, meaning in names.items()}.get(name.lower())
        if meaning is None:
            raise DocumentError(
                f'must be a known name; got "{name}".{nearest(name, names)}', place=self._at(key)
            )
        return meaning

    def names(self, key: str) -> list[str]:
        """Return one name or several as a list."""
        value = self._values.get(key.lower(), [])
        names = [value] if isinstance(value, str) else value
        self.require(
            isinstance(names, list) and all(isinstance(name, str) for name in names),
            key,
            "must be a layer's name, or a list of names",
        )
        return names

    def sizes(self, key: str, max_sizes: int) -> list[int]:
        """Return one whole number or several as a list; an empty list if the key is absent."""
        value = self._values.get(key.lower(), [])
        sizes = [
            int(size) if isinstance(size, float) and abs(size) < _EXACT and size.is_integer() else size
            for size in (value if isinstance(value, list) else [value])
        ]
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes)
        self.require(
            whole and len(sizes) <= max_sizes and (value != [] or key.lower() not in self._values),
            key,
            f"must be a whole number of at least 1, or a list of up to {max_sizes}",
        )
        return sizes

    def within(self, key: str, known: Sequence[str]) -> "Settings":
        """Return the object under a key; an empty one if the key is absent."""
        return Settings(self._values.get(key.lower(), {}), self._at(key), known)


_SPELLINGS = {
    "slope": "reluslope",
    "localresponsenormalization": "lrn",
    "datascaledmarginalcrossentropy": "scaledmarginalcrossentropy",
}
"""Second spellings of keys, in lower case, with the first."""


def lowered(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values by lower key in its first spelling; raises DocumentError if a key appears twice."""
    lower: dict[str, Any] = {}
    for key, value in values.items():
        name = _SPELLINGS.get(key.lower(), key.lower())
        DocumentError.require(
            name not in lower, f'the key "{key}" appears twice, in another case or spelling', place=place
        )
        lower[name] = value
    return lower
