"""Chooses the neighbourhood term of a preset on a validation part, with the weights of one training."""

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import goodbooks, gowalla
from benchmarks.latest import cut_latest, print_resemblance
from benchmarks.places import presets, workplace
from widenet import Dataset, split, train
from widenet.data.manifest import Part
from widenet.metrics.ranking import Metrics, RankingMetrics
from widenet.metrics.resampling import intervals
from widenet.model.neighbourhood import Neighbourhood
from widenet.model.network import Network
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.rows import Histories
from widenet.predict.top_k import Filter
from widenet.spec.layers import Neighbourhood as Term

_SETS = {"gowalla": gowalla, "goodbooks": goodbooks}
_BLOCK = 512
_K = 20


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("preset", choices=sorted(_SETS), help="a folder of examples")
    parser.add_argument(
        "--ordered",
        type=Path,
        help="hold out the last items of each line of this file, the published train.txt of Gowalla",
    )
    parser.add_argument("--share", type=float, default=0.2, help="share of each user's items for validation")
    parser.add_argument(
        "--users", type=int, default=4096, help="number of users to evaluate, drawn at random"
    )
    parser.add_argument("--neighbours", type=int, nargs="+", default=[10, 25, 100], help="neighbours to try")
    parser.add_argument("--floors", type=float, nargs="+", default=[0.003, 0.01, 0.03], help="floors to try")
    parser.add_argument(
        "--popularities", type=float, nargs="+", default=[0.0], help="exponents of popularity to try"
    )
    parser.add_argument("--weights", type=float, nargs="+", default=[0.3, 0.6, 1.0], help="weights to try")


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 without the term and with each setting of it."""
    with workplace() as folder:
        dataset, part = _prepared(asked, folder)
        network, training = presets(asked.preset)["best"]
        rows = _drawn(dataset, part, asked.users)
        print(f"{asked.preset}, {len(rows):,} users, {asked.share:.0%} of each user's items for validation\n")
        model = train(network, training, dataset, folder / "run")
        print("| neighbours | floor | weight | popularity | Recall@20 | NDCG@20 | difference | 95 % |")
        print("|---|---|---|---|---|---|---|---|")
        without = _metrics(model.network, dataset, part, rows)
        print(f"| without the term | - | - | - | {_cells(without)} | - | - |", flush=True)
        settings = product(asked.neighbours, asked.floors, asked.weights, asked.popularities)
        for neighbours, floor, weight, popularity in settings:
            term = Term(weight=weight, floor=floor, neighbours=neighbours, popularity=popularity)
            _set_term(model.network, dataset, term)
            metrics = _metrics(model.network, dataset, part, rows)
            row = f"| {neighbours} | {floor:g} | {weight:g} | {popularity:g} | {_cells(metrics)}"
            print(f"{row} | {_difference(without, metrics)} |", flush=True)


def _prepared(asked: argparse.Namespace, folder: Path) -> tuple[Dataset, Part]:
    """Make the dataset, and name its validation part."""
    _SETS[asked.preset].prepare(folder)
    random = split(folder / "data", folder / "tuning", validation=asked.share)
    if asked.ordered is None:
        return random, "validation"
    latest = cut_latest(asked.ordered, asked.share, folder)
    print_resemblance(
        {
            "test": (Dataset.open(folder / "data"), "heldout"),
            "latest of training": (latest, "heldout"),
            "random of training": (random, "validation"),
        }
    )
    return latest, "heldout"


def _set_term(network: Network, dataset: Dataset, term: Term) -> None:
    """Give the output of a trained network another neighbourhood term; the weights stay."""
    [output] = network.outputs.values()
    spec = output.spec.model_copy(update={"neighbourhood": term})
    output.neighbourhood = Neighbourhood(spec, output.weight.shards, network.exchange, network.device)
    output.neighbourhood.count(dataset)


def _drawn(dataset: Dataset, part: Part, number: int) -> np.ndarray:
    """Return some users with items to find, ascending."""
    able = np.flatnonzero(dataset.entry_counts("items", slice(None), part))
    return np.sort(np.random.default_rng(0).permutation(able)[:number])


def _metrics(network: Network, dataset: Dataset, part: Part, rows: np.ndarray) -> Metrics:
    """Return the metrics of some users, with those of each."""
    [(name, output)] = network.outputs.items()
    histories = Histories(network, dataset, lambda _: ["train"])
    allowed = Filter().within(dataset.field("items").width, output)
    metrics = RankingMetrics([_K], dataset.counts("items"))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        with fixed_arithmetic():
            _, units_EK = histories.best(name, block, _K, allowed=allowed, scores=False)
        truth = dataset.sparse("items", block, part)
        metrics.add(units_EK.numpy(), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64), block)
    return metrics.result()


def _cells(metrics: Metrics) -> str:
    return f"{metrics['recall@20']:.4f} | {metrics['ndcg@20']:.4f}"


def _difference(without: Metrics, metrics: Metrics) -> str:
    """Return the difference in NDCG@20 and its interval over users as cells of a table."""
    assert without.users is not None
    assert metrics.users is not None
    column = without.users.names.index("ndcg@20")
    differences_E = metrics.users.values[:, column] - without.users.values[:, column]
    [lower], [upper] = intervals(differences_E[:, None], 0.95)
    return f"{differences_E.mean():+.4f} | {lower:+.4f} to {upper:+.4f}"
