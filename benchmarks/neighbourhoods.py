"""Chooses the neighbourhood term of a preset on a validation part, with the weights of one training."""

import argparse
from itertools import product

import numpy as np

from benchmarks import goodbooks, gowalla
from benchmarks.places import presets, workplace
from widenet import Dataset, split, train
from widenet.metrics.ranking import RankingMetrics
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
    parser.add_argument("--share", type=float, default=0.2, help="share of each user's items for validation")
    parser.add_argument(
        "--users", type=int, default=4096, help="number of users to evaluate, drawn at random"
    )
    parser.add_argument("--neighbours", type=int, nargs="+", default=[10, 25, 100], help="neighbours to try")
    parser.add_argument("--floors", type=float, nargs="+", default=[0.003, 0.01, 0.03], help="floors to try")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.3, 0.6, 1.0], help="weights to try")


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 without the term and with each setting of it."""
    with workplace() as folder:
        _SETS[asked.preset].prepare(folder)
        dataset = split(folder / "data", folder / "tuning", validation=asked.share)
        network, training = presets(asked.preset)["best"]
        rows = _drawn(dataset, asked.users)
        print(f"{asked.preset}, {len(rows):,} users, {asked.share:.0%} of each user's items for validation\n")
        model = train(network, training, dataset, folder / "run")
        print("| neighbours | floor | weight | Recall@20 | NDCG@20 |\n|---|---|---|---|---|")
        print(f"| without the term | - | - | {_metrics(model.network, dataset, rows)} |", flush=True)
        for neighbours, floor, weight in product(asked.neighbours, asked.floors, asked.weights):
            _set_term(model.network, dataset, Term(weight=weight, floor=floor, neighbours=neighbours))
            row = f"| {neighbours} | {floor:g} | {weight:g} |"
            print(f"{row} {_metrics(model.network, dataset, rows)} |", flush=True)


def _set_term(network: Network, dataset: Dataset, term: Term) -> None:
    """Give the output of a trained network another neighbourhood term; the weights stay."""
    [output] = network.outputs.values()
    spec = output.spec.model_copy(update={"neighbourhood": term})
    output.neighbourhood = Neighbourhood(spec, output.weight.shards, network.exchange, network.device)
    output.neighbourhood.count(dataset)


def _drawn(dataset: Dataset, number: int) -> np.ndarray:
    """Return some users with items to find, ascending."""
    able = np.flatnonzero(dataset.entry_counts("items", slice(None), "validation"))
    return np.sort(np.random.default_rng(0).permutation(able)[:number])


def _metrics(network: Network, dataset: Dataset, rows: np.ndarray) -> str:
    """Return Recall@20 and NDCG@20 of some users as cells of a table."""
    [(name, output)] = network.outputs.items()
    histories = Histories(network, dataset, lambda _: ["train"])
    allowed = Filter().within(dataset.field("items").width, output)
    metrics = RankingMetrics([_K], dataset.counts("items"))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        with fixed_arithmetic():
            _, units_EK = histories.best(name, block, _K, allowed=allowed, scores=False)
        truth = dataset.sparse("items", block, "validation")
        metrics.add(units_EK.numpy(), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64))
    result = metrics.result()
    return f"{result['recall@20']:.4f} | {result['ndcg@20']:.4f}"
