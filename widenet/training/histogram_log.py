"""The file histograms.jsonl of a run: norms and histograms of its layers, one line per epoch."""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from widenet.training.checkpoint import writing
from widenet.training.run_files import objects, values, write_whole

FILE = "histograms.jsonl"

GROUPS = ("weights", "gradients", "activations")
"""The entries of a line beside "epoch"; each has a histogram by name of a weight or layer."""

LOWEST, HIGHEST = -126, 128
"""The powers of two at which the first and the last bin begin; 2^128 stands for infinity and NaN."""

_MOST_NUMBERS = 2**63


@dataclass(frozen=True)
class Histogram:
    """The norm of some numbers, and how many of them lie between two powers of two.

    Attributes:
        norm: Square root of the sum of squares; None if a number is not finite.
        numbers: How many numbers there are.
        zeros: How many have a magnitude below 2^-126.
        lowest: Power of two at which the first bin begins.
        negative: Bin i counts numbers x with 2^(lowest + i) <= -x < 2^(lowest + i + 1).
        positive: The same of x; both have equally many bins.
    """

    norm: float | None
    numbers: int
    zeros: int
    lowest: int
    negative: Sequence[int]
    positive: Sequence[int]

    @classmethod
    def read(cls, value: object) -> Self | None:
        """Return a histogram from a line of the file; None if it is damaged."""
        if not isinstance(value, dict) or value.keys() != cls.__dataclass_fields__.keys():
            return None
        histogram = cls(**value)
        return histogram if histogram._is_whole() else None

    def _is_whole(self) -> bool:
        bins = (self.negative, self.positive)
        if not all(isinstance(side, list) for side in bins) or len(self.negative) != len(self.positive):
            return False
        counts = [self.numbers, self.zeros, *self.negative, *self.positive]
        if not all(type(count) is int and 0 <= count < _MOST_NUMBERS for count in counts):
            return False
        if type(self.lowest) is not int or not LOWEST <= self.lowest <= HIGHEST + 1 - len(self.negative):
            return False
        is_norm = self.norm is None or (type(self.norm) is float and 0 <= self.norm < math.inf)
        return is_norm and self.numbers == sum(counts[1:])

    @property
    def limits(self) -> list[float]:
        """The edges of all bins, ascending; zeros lie between the two in the middle."""
        powers = [2.0**power for power in range(self.lowest, self.lowest + len(self.positive) + 1)]
        return [-power for power in reversed(powers)] + powers


Groups = Mapping[str, Mapping[str, Histogram]]
"""Histograms by name, by group."""


def plain(histograms: Mapping[str, Histogram]) -> dict[str, dict[str, Any]]:
    """Return the histograms of a group as a line holds them."""
    return {name: {**vars(histogram)} for name, histogram in histograms.items()}


def append(run: Path, line: Mapping[str, Any]) -> None:
    """Append the line of an epoch; raises CheckpointError."""
    path = run / FILE
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read(run: Path) -> dict[int, Groups]:
    """Return the histograms of every epoch, without those that a power cut has damaged."""
    return {line["epoch"]: groups(line) for line in values(run / FILE) if _is_of_epoch(line)}


def newest(run: Path, epoch: int) -> Groups:
    """Return the histograms of the newest epoch; empty if the last line is of another one."""
    path = run / FILE
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        last = [*deque(file, maxlen=1)]
    lines = [line for line in objects(last) if line.get("epoch") == epoch]
    return groups(lines[0]) if lines else {}


def rewind(run: Path, epochs: int) -> None:
    """Drop the lines of later epochs than `epochs`, which will be trained again, and damaged lines."""
    path = run / FILE
    if path.exists():
        kept = [line for line in values(path) if _is_of_epoch(line) and line["epoch"] <= epochs]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept)
        write_whole(path, text.encode())


def groups(line: Mapping[str, Any]) -> Groups:
    """Return the histograms of a line."""
    return {
        group: {
            name: histogram
            for name, value in line[group].items()
            if (histogram := Histogram.read(value)) is not None
        }
        for group in GROUPS
        if isinstance(line.get(group), dict)
    }


def norms(of_groups: Groups) -> dict[str, float]:
    """Return the norms by name, such as "norms/weights/taste/items"."""
    return {
        f"norms/{group}/{name}": histogram.norm
        for group, histograms in of_groups.items()
        for name, histogram in histograms.items()
        if histogram.norm is not None
    }


def _is_of_epoch(line: Mapping[str, Any]) -> bool:
    return type(line.get("epoch")) is int
