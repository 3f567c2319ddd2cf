"""Changes of single settings in the documents of a training, as command lines name them."""

import json
import operator
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

Documents = tuple[dict[str, Any], dict[str, Any]]
"""A network and its training document."""
Change = dict[str, Any]
"""Values of settings, by their names."""
Places = Mapping[str, tuple[int | str, ...]]
"""Where the documents of a training have each setting: 0 for the network or 1 for the training, then keys."""

TRAINING: Places = {
    "learning_rate": (1, "optimizer", "learning_rate"),
    "schedule": (1, "schedule"),
    "batch_size": (1, "batch_size"),
    "epochs": (1, "epochs"),
}


def add_option(parser: ArgumentParser, places: Places, default: Sequence[Change] = ()) -> None:
    """Add the option `--changes`, whose values are changes."""
    parser.add_argument(
        "--changes",
        type=_parsed(places),
        nargs="*",
        default=default,
        metavar="SETTING=VALUE",
        help=f"one row each, several settings with commas; settings: {', '.join(places)}",
    )


def apply(change: Change, documents: Documents, places: Places) -> None:
    """Give settings of documents other values."""
    for name, value in change.items():
        *path, last = places[name]
        place: Any = documents
        for key in path:
            if isinstance(place, dict) and isinstance(place.get(key), str):
                place[key] = {"kind": place[key]}
            place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
        place[last] = value


def value_at(place: tuple[int | str, ...], documents: Documents) -> Any:
    """Return what documents have at a place."""
    return reduce(operator.getitem, place, cast(Any, documents))


def shown(change: Change) -> str:
    """Return a change as a cell of a table."""
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in change.items()) or "none"


def _parsed(places: Places) -> Callable[[str], Change]:
    """Return a function that reads a text such as "units=128,bias=false"."""

    def change(text: str) -> Change:
        found = {}
        for part in re.split(",(?=[a-z_]+=)", text):
            name, sign, value = part.partition("=")
            if not sign:
                raise ArgumentTypeError(f"must be SETTING=VALUE; got {part!r}")
            if name not in places:
                raise ArgumentTypeError(f"{name!r} is not one of {', '.join(places)}")
            try:
                found[name] = json.loads(value)
            except json.JSONDecodeError:
                found[name] = value
        _check_nested(found, places)
        return found

    return change


def _check_nested(change: Change, places: Places) -> None:
    """Raise ArgumentTypeError if a setting lies within another, to which the change gives no fields."""
    for outer, value in change.items():
        own = places[outer]
        within = [name for name in change if name != outer and places[name][: len(own)] == own]
        if within and not isinstance(value, dict | str):
            raise ArgumentTypeError(
                f"{within[0]!r} is a part of {outer!r}, which must then be an object; got {json.dumps(value)}"
            )
