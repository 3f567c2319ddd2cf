"""Item vectors of a recommender: pruned row by row, with shared values, evaluated by the trained model."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.places import DATA, EXAMPLES
from benchmarks.synthetic import draw_interactions
from labs.command import AbsentDataError
from labs.compression.storage import Shared, Sizes, share_values, sizes
from widenet import Dataset, Model, dataset_from_lists, ingest, train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

Floats = NDArray[np.float32]
OUTPUT = "next"
HALF_STEPS = {2: 0.4978, 3: 0.293, 4: 0.1676}
"""Best half distance of evenly spaced values, in deviations of normal numbers, by bits.

Joel Max, "Quantizing for minimum distortion", IRE Transactions on Information Theory, 1960, table II.
"""


@dataclass(frozen=True)
class Recommender:
    """A trained model, the dataset that it is evaluated on, and the name of its weight."""

    model: Model
    data: Dataset

    def vectors(self) -> Floats:
        """Return the vectors of all items, float32 [items, H]."""
        parts = self._parts()
        out = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.float32)
        for shard, part in enumerate(parts):
            out[shard :: len(parts)] = part.numpy()
        return out

    def ndcg(self, vectors: Floats) -> float:
        """Return NDCG@20 of the model with other vectors."""
        parts = self._parts()
        for shard, part in enumerate(parts):
            part.copy_(torch.from_numpy(vectors[shard :: len(parts)]))
        return float(self.model.evaluate(self.data, ks=(20,))["ndcg@20"])

    def _parts(self) -> list[torch.Tensor]:
        network = self.model.network
        weight = network.wide[network.layout.links[OUTPUT, ""].weight]
        return [weight.parts[shard].weight.detach() for shard in sorted(weight.parts)]


def generated(folder: Path) -> Recommender:
    """Train the preset of Gowalla on generated interactions, with fewer units."""
    users, items = draw_interactions(range(600), 600, 500, 12_000)
    rows = [items[users == user].tolist() for user in range(600)]
    data = dataset_from_lists(
        folder / "data",
        [row[::2] + row[1::4] for row in rows],
        heldout=[row[3::4] for row in rows],
        width=500,
    )
    return _trained(folder, data, units=64, epochs=5)


def gowalla(folder: Path) -> Recommender:
    """Train the preset of Gowalla, with fewer units and epochs."""
    source = DATA / "gowalla"
    if not source.is_dir():
        raise AbsentDataError(f"no interactions of Gowalla at {source}; set WIDENET_DATA.")
    data = ingest([source / "train.txt"], folder / "data", heldout=source / "test.txt", format="adjacency")
    return _trained(folder, data, units=128, epochs=4)


def _trained(folder: Path, data: Dataset, units: int, epochs: int) -> Recommender:
    network, training = (
        json.loads((EXAMPLES / "gowalla" / f"{name}.json").read_text("utf-8"))
        for name in ("network", "training")
    )
    network["layers"][1] |= {"units": units, "initializer": {"kind": "gaussian", "deviation": 0.1}}
    training |= {"epochs": epochs}
    model = train(NetworkSpec.of(network), TrainingSpec.of(training), data, folder / "run", device="cpu")
    return Recommender(model, data)


def pruned(vectors: Floats, kept: int) -> NDArray[np.bool_]:
    """Return which numbers stay: in every row those of the largest magnitude."""
    best = np.argsort(-np.abs(vectors), axis=1, kind="stable")[:, :kept]
    mask = np.zeros(vectors.shape, bool)
    np.put_along_axis(mask, best, True, axis=1)
    return mask


def compressed(vectors: Floats, kept: int, bits: int) -> tuple[Floats, Floats, Sizes]:
    """Return vectors with `kept` numbers a row, the same with 2^bits values, and the bytes of each rung."""
    mask = pruned(vectors, kept).ravel()
    shared: Shared = share_values(vectors.ravel(), mask, bits)
    short = np.where(mask, vectors.ravel(), np.float32(0)).reshape(vectors.shape)
    return short, shared.values().reshape(vectors.shape), sizes(shared, bits)


def few_bits(vectors: Floats, bits: int) -> tuple[Floats, int]:
    """Return vectors rounded to whole numbers of so many bits times a scale for each, and their bytes.

    Numbers of 8 bits reach from -127 to 127. Those of fewer are odd, from -m to m for m = 2^bits - 1; their
    scale is the best one for normal numbers of the vector's mean square, but at most the largest magnitude
    over m.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    if bits == 8:
        scale = np.maximum(largest / 127, np.finfo(np.float32).tiny)
        whole = np.rint(vectors / scale)
    else:
        most = 2**bits - 1
        deviation = np.sqrt(np.square(vectors).mean(axis=1, keepdims=True))
        scale = np.minimum(deviation * np.float32(HALF_STEPS[bits]), largest / most)
        scale = np.maximum(scale, np.finfo(np.float32).tiny)
        whole = np.clip(2 * np.floor(vectors / (2 * scale)) + 1, -most, most)
    num_bytes = len(vectors) * (-(-vectors.shape[1] * bits // 8) + 4)
    return (whole * scale).astype(np.float32), num_bytes
