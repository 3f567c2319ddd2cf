"""Amounts as people write and read them: 141GB, 2.5 TFLOP."""

import re

from widenet.errors import OptionError

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_LEAST_WITHOUT_UNIT = 1_000_000


def amount(number: float, unit: str = "B") -> str:
    """Three digits and a decimal prefix: "1.28 GB"."""
    power = 0
    while number >= 999.5 and power < len(_PREFIXES) - 1:
        number, power = number / 1000, power + 1
    digits = 0 if power == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_PREFIXES[power]}{unit}"


def bytes_of(text: str, option: str) -> int:
    """The bytes that "141GB", "80 GiB" or "24e9" say; raises OptionError, also for a bare number so small
    that a unit was forgotten.
    """
    found = re.fullmatch(
        r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*(?:([KMGTPE])(i?))?(B?)\s*", text, re.IGNORECASE
    )
    prefix = "" if found is None or found[2] is None else found[2].upper().replace("K", "k")
    number = (
        0.0
        if found is None
        else float(found[1]) * (1024.0 if found[3] else 1000.0) ** _PREFIXES.index(prefix)
    )
    if not 1 <= number < 2**63:
        raise OptionError(f'{option} must be an amount of bytes above 0, such as 141GB; got "{text}".')
    if found is not None and not (found[2] or found[4]) and number < _LEAST_WITHOUT_UNIT:
        meant = f"{text.strip()}GB"
        raise OptionError(
            f'{option} must have a unit; got "{text}", which are {int(number):,} bytes. Write {meant}, if'
            " that is meant."
        )
    return int(number)
