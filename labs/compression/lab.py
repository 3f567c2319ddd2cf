"""Climbs the ladder of Deep Compression, prune, share, encode, with LeNet-300-100 and with item vectors.

The vectors are also put into few bits.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.results import Table
from labs.command import AbsentDataError
from labs.compression.lenet import BITS, LeNet
from labs.compression.storage import Sizes
from labs.compression.vectors import compressed, few_bits, generated, gowalla
from labs.mnist import digits

SHARED_BITS = 4
"""Bits of a number of an item's vector."""


def run(small: bool) -> list[Table]:
    """Return two tables: of the network, and of the vectors."""
    tables = []
    try:
        tables.append(_network(small))
    except AbsentDataError as absent:
        print(f"LeNet is skipped: {absent}\n")
    with TemporaryDirectory(prefix="widenet-lab-") as folder:
        tables.append(_vectors(Path(folder), small))
    return tables


def _network(small: bool) -> Table:
    train, test = digits("train", 4_000 if small else None), digits("t10k", 2_000 if small else None)
    epochs = 3 if small else 12
    network, errors = LeNet.drawn(0), []
    network.learn(train, epochs, 1e-3, 0, "dense")
    errors.append(network.error(test))
    network.prune()
    cut = network.error(test)
    network.learn(train, epochs, 1e-3, 0, "pruned")
    errors.append(network.error(test))
    network.share()
    network.learn(train, max(1, epochs // 5), 1e-4, 0, "shared")
    errors += [network.error(test)] * 2
    table = Table(
        f"LeNet-300-100 on MNIST, {len(train):,} pictures",
        ["rung", "error, percent", "bytes", "times smaller", "published: error", "published: times smaller"],
    )
    published = [("1.64", "1"), ("-", "12"), ("-", "32"), ("1.58", "40")]
    for cells, error, rung in zip(_rungs(network.stored(), BITS), errors, published, strict=True):
        table.rows.append([cells[0], f"{error:.2f}", *cells[1:], *rung])
    table.notes.append(f"Without retraining, the pruned network's error is {cut:.2f} percent.\n")
    return table


def _rungs(found: Sizes, bits: int) -> list[list[str]]:
    names = ("float32", "pruned", f"shared values, {bits} bits", "Huffman's code")
    parts = (found.dense, found.pruned, found.shared, found.coded)
    return [[name, f"{part:,}", f"{found.dense / part:.1f}"] for name, part in zip(names, parts, strict=True)]


def _vectors(folder: Path, small: bool) -> Table:
    recommender = generated(folder) if small else gowalla(folder)
    vectors = recommender.vectors()
    whole, units = recommender.ndcg(vectors), vectors.shape[1]
    table = Table(
        f"Vectors of {len(vectors):,} items of {'generated data' if small else 'Gowalla'}, {units} units",
        ["numbers kept of each item", "values", "NDCG@20", "of all", "bytes", "times smaller"],
    )
    table.rows.append([str(units), "float32", f"{whole:.4f}", "100.0 %", f"{vectors.nbytes:,}", "1.0"])
    for number in (8, 4, 3, 2):
        rounded, num_bytes = few_bits(vectors, number)
        ndcg = recommender.ndcg(rounded)
        cells = [f"{ndcg:.4f}", f"{100 * ndcg / whole:.1f} %", f"{num_bytes:,}"]
        table.rows.append(
            [str(units), f"{number} bits and a scale", *cells, f"{vectors.nbytes / num_bytes:.1f}"]
        )
    for kept in (units, units // 2, units // 4, units // 10):
        short, shared, found = compressed(vectors, kept, SHARED_BITS)
        rows = []
        if kept < units:
            rows.append(("float32", recommender.ndcg(short), found.pruned))
        ndcg, bits = recommender.ndcg(shared), f"{SHARED_BITS} bits"
        rows += [(bits, ndcg, found.shared), (f"{bits}, Huffman's code", ndcg, found.coded)]
        for values, ndcg, num_bytes in rows:
            cells = [f"{ndcg:.4f}", f"{100 * ndcg / whole:.1f} %", f"{num_bytes:,}"]
            table.rows.append([str(kept), values, *cells, f"{vectors.nbytes / num_bytes:.1f}"])
    table.notes.append("The vectors are pruned after the training, without another one.\n")
    return table
