"""Amounts as people write and read them: 141GB, 2.5 TFLOP."""

import re

from widenet.errors import OptionError

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def amount(number: float, unit: str = "B") -> str:
    """Three digits and a decimal prefix: "1.28 GB"."""
    power = 0
    while number >= 999.5 and power < len(_PREFIXES) - 1:
        number, power = number / 1000, power + 1
    digits = 0 if power == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_PREFIXES[power]}{unit}"


def bytes_of(text: str, option: str) -> int:
    """The bytes that "141GB", "80 GiB" or "24e9" say; raises OptionError."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*([KMGTPE]?)(i?)B?\s*", text, re.IGNORECASE)
    if found is None or not 0 < float(found[1]) < 1e300:
        raise OptionError(f'{option} must be an amount of bytes above 0, such as 141GB; got "{text}".')
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _PREFIXES.index(found[2].upper().replace("K", "k")))
