"""Amounts as people write and read them: 141GB, 2.5 TFLOP."""

import re

from widenet.errors import OptionError

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def amount(number: float, unit: str = "B") -> str:
    """Three digits and a decimal prefix: "1.28 GB"."""
    for prefix, power in reversed(_POWERS.items()):
        if number >= 1000**power * 0.9995 or not power:
            scaled = number / 1000**power
            return f"{scaled:.{max(0, 3 - len(str(int(scaled + 0.0005))))}f} {prefix.replace('K', 'k')}{unit}"
    raise AssertionError


def bytes_of(text: str, option: str) -> int:
    """The bytes that "141GB", "80 GiB" or "24e9" say; raises OptionError."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*([KMGTPE]?)(i?)B?\s*", text, re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise OptionError(f'{option} must be an amount of bytes above 0, such as 141GB; got "{text}".')
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].upper()])
