"""Programs to be measured that do nothing of use, and so import nothing that takes long."""

from pathlib import Path


def writing(path, letter):
    """A program that writes down each of its steps."""

    def steps(number):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(letter * number)
        return {"loss": 1.5}

    return steps


def greedy():
    """A program that needs more memory than there is."""
    return lambda _: {"bytes": len(bytearray(2**50))}


def dying():
    """A program that ends without a word."""
    raise SystemExit(3)
