"""Reads the digits of MNIST."""

import gzip
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.places import DATA
from labs.command import AbsentDataError

PIXELS = 28 * 28
CLASSES = 10


@dataclass(frozen=True)
class Digits:
    """Pictures and what they show.

    Attributes:
        pixels: float32 [N, 784], from 0 to 1.
        labels: int64 [N], from 0 to 9.
    """

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def digits(part: Literal["train", "t10k"], num: int | None = None) -> Digits:
    """Return the first pictures of a part; None: all of them.

    Raises:
        AbsentDataError: The files are not on this machine.
    """
    folder = DATA / "mnist"
    if not folder.is_dir():
        raise AbsentDataError(f"no digits of MNIST at {folder}; set WIDENET_DATA.")
    pixels, labels = (
        np.frombuffer(gzip.decompress((folder / f"{part}-{kind}-ubyte.gz").read_bytes()), np.uint8)[header:]
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8))
    )
    pictures = pixels.reshape(-1, PIXELS)[:num].astype(np.float32) / np.float32(255)
    return Digits(pictures, labels[:num].astype(np.int64))
