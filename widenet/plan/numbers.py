"""Formats and parses amounts: 141GB, 2.5 TFLOP, 1 h 20 min."""

import re
from functools import partial

from widenet.errors import OptionError

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_LEAST_SECONDS = 0.1
_LEAST_WITHOUT_UNIT = 1_000_000
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def decimal(text: str) -> float | None:
    """Read a decimal number as programs write it, without Python's underscores and other digits."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def amount(number: float, unit: str = "B") -> str:
    """Format a number with three digits and a decimal prefix: "1.28 GB"."""
    power = 0
    while number >= 999.5 and power < len(_PREFIXES) - 1:
        number, power = number / 1000, power + 1
    digits = 0 if power == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_PREFIXES[power]}{unit}"


def duration(seconds: float) -> str:
    """Format a time for people: "1 h 20 min"."""
    if 0 < seconds < _LEAST_SECONDS:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"


def bytes_of(text: str, option: str) -> int:
    """Return the bytes of "141GB", "80 GiB" or "24e9".

    Raises:
        OptionError: The text is no amount, or a number so small that its unit was probably forgotten.
    """
    form = r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*(?:([KMGTPE])(i?))?(B?)\s*"
    match = re.fullmatch(form, text, re.IGNORECASE)
    digits, prefix, binary, unit = ("0", "", "", "") if match is None else match.groups("")
    power = "".join(_PREFIXES).upper().index(prefix.upper()) + 1 if prefix else 0
    number = float(digits) * (1024.0 if binary else 1000.0) ** power
    require = partial(OptionError.require, option=option, value=text)
    require(1 <= number < 2**63, "must be an amount of bytes above 0, such as 141GB")
    has_unit = prefix or unit or number >= _LEAST_WITHOUT_UNIT
    require(has_unit, f"must have a unit, such as {text.strip()}GB")
    return int(number)
