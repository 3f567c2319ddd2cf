"""An object of a DSSTNE document: its keys in any case, and what stands under them, checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from widenet.errors import DocumentError, did_you_mean

_HINTS = {
    "weightdata": (
        'DSSTNE calls it "WeightsData"; a trained network comes in with its weights from its .nc file.'
    ),
    "l1penalty": 'Write "l1" in training.json.',
    "recurrent": "DSSTNE never had it; widenet has recurrent layers in its own documents.",
    "errorfunction": (
        "DSSTNE has one ErrorFunction for the network; widenet's own documents have one an output."
    ),
    "transpose": 'DSSTNE calls it "Transposed", in "SharedWeights".',
}
"""What to say of keys that DSSTNE's documents describe and DSSTNE refuses."""

_EXACT = 2.0**53
"""Below this a floating-point number without decimals is a whole number exactly."""


class Settings:
    """An object of a document. place: where it stands, as "config.json: Layers[1]"."""

    def __init__(self, values: Any, place: str, known: Sequence[str]) -> None:
        if not isinstance(values, dict):
            raise DocumentError(f"{place} must be an object with named fields; got {values!r}.")
        self.place = place
        self._values = lowered(values, place)
        self._order = sorted(values)
        spelled = {key.lower(): key for key in known}
        for key in values:
            if key.lower() not in spelled:
                raise DocumentError(
                    f"{self._at(key)} is not a known key of DSSTNE's here.{_hint(key, spelled)}"
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
        """The error that a key breaks a rule: "must be ..."."""
        return DocumentError(f"{self._at(key)} {rule}; got {self._values.get(key.lower())!r}.")

    def spelled(self, *keys: str) -> str:
        """The one of several spellings that counts: of those in the object the one that DSSTNE reads last;
        the first if there is none.
        """
        return [keys[0], *self._spellings(*keys)][-1]

    def _spellings(self, *keys: str) -> list[str]:
        """Those of some keys that the object has, in the order in which DSSTNE reads them: by their bytes
        as they are written.
        """
        lowered_keys = {key.lower(): key for key in keys}
        return [lowered_keys[key.lower()] for key in self._order if key.lower() in lowered_keys]

    def raw(self, key: str) -> Any:
        """What stands under a key; None where nothing does."""
        return self._values.get(key.lower())

    def number(self, key: str, default: float, low: float | None = None, high: float | None = None) -> float:
        """A number, within limits that count as allowed."""
        value = self._values.get(key.lower(), default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "must be a number")
        if (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(
                key, f"must be at least {low:g}" if high is None else f"must be from {low:g} to {high:g}"
            )
        return float(value)

    def switch(self, key: str, default: bool) -> bool:
        """True or false, which DSSTNE also takes as a number."""
        value = self._values.get(key.lower(), default)
        if not isinstance(value, bool | int):
            raise self.wrong(key, "must be true or false")
        return bool(value)

    def text(self, key: str, default: str = "") -> str:
        """Some text."""
        value = self._values.get(key.lower(), default)
        if not isinstance(value, str):
            raise self.wrong(key, "must be text in quotes")
        return value

    def choice(self, key: str, names: Mapping[str, str], default: str) -> str:
        """What a name stands for, whatever its case. names: by DSSTNE's spelling."""
        given = self.text(key, default)
        found = {name.lower(): meaning for name, meaning in names.items()}.get(given.lower())
        if found is None:
            raise DocumentError(
                f"{self._at(key)} must be a known name; got"
                f' "{given}".{_hint(given, {name.lower(): name for name in names})}'
            )
        return found

    def names(self, key: str) -> list[str]:
        """A name or several."""
        value = self._values.get(key.lower(), [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self.wrong(key, "must be a layer's name, or a list of names")
        return found

    def sizes(self, key: str, most: int) -> list[int]:
        """A whole number or a list of some; empty where the key is absent."""
        value = self._values.get(key.lower(), [])
        given = value if isinstance(value, list) else [value]
        found = [
            int(size) if isinstance(size, float) and abs(size) < _EXACT and size.is_integer() else size
            for size in given
        ]
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in found)
        if not whole or len(found) > most or (value == [] and key.lower() in self._values):
            raise self.wrong(key, f"must be a whole number of at least 1, or a list of up to {most}")
        return found

    def within(self, key: str, known: Sequence[str]) -> "Settings":
        """The object under a key; an empty one where there is none."""
        return Settings(self._values.get(key.lower(), {}), self._at(key), known)

    def merged(self, known: Sequence[str], *keys: str) -> "Settings":
        """The objects under several spellings of a key as one; of what stands in both that counts which
        DSSTNE reads last.
        """
        found = [self.within(key, known) for key in self._spellings(*keys)] or [self.within(keys[0], known)]
        together: dict[str, Any] = {}
        for each in found:
            together |= each._values
        return Settings(together, found[-1].place, known)


def lowered(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The same values under keys in lower case; raises DocumentError where two keys differ in case alone."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key.lower() in found:
            raise DocumentError(f'{place}: the key "{key}" stands twice, in another case. Keep one of them.')
        found[key.lower()] = value
    return found


def _hint(key: str, spelled: Mapping[str, str]) -> str:
    if key.lower() in _HINTS:
        return f" {_HINTS[key.lower()]}"
    if key.lower().startswith("checkpoint"):
        return ' Write "checkpoints" in training.json.'
    near = did_you_mean(key.lower(), spelled)
    for low, name in sorted(spelled.items(), key=lambda pair: -len(pair[0])):
        if near == f' Did you mean "{low}"?':
            return f' Did you mean "{name}"?'
    return f" Known: {', '.join(spelled.values())}."
