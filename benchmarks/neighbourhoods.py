"""Chooses on a validation part what a preset adds to its logits, its prediction temperature, and a factor."""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latest import cut_latest, print_resemblance
from benchmarks.places import presets, workplace
from benchmarks.usual import SETS, default_documents, set_units
from widenet import Dataset, split, train
from widenet.baselines.evaluate import evaluate
from widenet.data.manifest import Part
from widenet.metrics.ranking import Metrics
from widenet.metrics.resampling import intervals
from widenet.model.network import Network
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.terms import count_neighbours
from widenet.runs.neighbourhood import set_terms
from widenet.spec.layers import Neighbourhood as Term

PRESETS = "gowalla", "goodbooks"
_K = 20
_COLUMNS = (
    "factor",
    "neighbours",
    "floor",
    "weight",
    "popularity",
    "temperature",
    "Recall@20",
    "NDCG@20",
    "difference",
    "95 %",
)

Setting = tuple[int, float, float, float]
"""Neighbours, floor, weight and popularity of a term."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("preset", choices=sorted(SETS), help="a data set")
    parser.add_argument(
        "--default",
        action="store_true",
        help=f"train the default documents; only {' and '.join(PRESETS)} have a preset",
    )
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
    parser.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        help="prediction temperatures to try; default: as in training",
    )
    parser.add_argument(
        "--others",
        type=float,
        nargs="+",
        default=[1.0],
        help="factors on the gradients of items that are no targets; each needs a training",
    )
    parser.add_argument("--units", type=int, help="units in place of the preset's, for less time")
    parser.add_argument("--epochs", type=int, help="epochs in place of the preset's, for less time")


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 of each setting, without the term and with it."""
    if not asked.default and asked.preset not in PRESETS:
        raise SystemExit(f"{asked.preset} has no preset; add --default")
    with workplace() as folder:
        dataset, part = prepared(asked, folder)
        rows = drawn_users(dataset, part, asked.users)
        print(f"{asked.preset}, {len(rows):,} users, {asked.share:.0%} of each user's items for validation\n")
        print(f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|")
        first = None
        for other in asked.others:
            model = train(*_documents(asked, other, dataset), dataset, folder / f"{other:g}")
            for cells, metrics in _measured(model.network, asked, dataset, part, rows):
                compared = "- | -" if first is None else difference(first, metrics)
                first = first or metrics
                print(f"| {other:g} | {cells} | {metric_cells(metrics)} | {compared} |", flush=True)


def _documents(
    asked: argparse.Namespace, other: float, dataset: Dataset
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the documents of a training."""
    if asked.default:
        network, training = default_documents(dataset)
    else:
        network, training = (json.loads(path.read_text("utf-8")) for path in presets(asked.preset)["best"])
    output = network["layers"][-1]
    if asked.default and asked.units:
        set_units(network, asked.units)
    elif asked.units:
        network["layers"][1]["units"] = asked.units
    if other != 1:
        output["delta_boost"] = {"other": other}
    return network, {**training, "epochs": asked.epochs or training["epochs"]}


def _measured(
    network: Network, asked: argparse.Namespace, dataset: Dataset, part: Part, rows: np.ndarray
) -> Iterator[tuple[str, Metrics]]:
    """Yield the settings of a trained network, as cells of a table, and their metrics."""
    [output] = network.outputs.values()
    assert output.spec.cosine is not None
    temperatures = asked.temperatures or [output.spec.cosine.temperature]
    settings = product(asked.neighbours, asked.floors, asked.weights, asked.popularities)
    for setting in (None, *settings):
        count_term(network, dataset, None if setting is None else _term(setting))
        for temperature in temperatures:
            _set_temperature(network, temperature)
            cells = ["no term", "-", "-", "-"] if setting is None else [f"{number:g}" for number in setting]
            metrics = metrics_of(network, dataset, part, rows)
            yield " | ".join([*cells, f"{temperature:g}"]), metrics


def _term(setting: Setting) -> Term:
    neighbours, floor, weight, popularity = setting
    return Term(weight=weight, floor=floor, neighbours=neighbours, popularity=popularity)


def prepared(asked: argparse.Namespace, folder: Path) -> tuple[Dataset, Part]:
    """Make the dataset, and name its validation part."""
    SETS[asked.preset][0](folder)
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


def count_term(network: Network, dataset: Dataset, term: Term | None) -> None:
    """Give the output of a trained network another neighbourhood term, or none; the weights stay."""
    [(name, output)] = network.outputs.items()
    set_terms(network, name, neighbourhood=term)
    count_neighbours(output, dataset)


def _set_temperature(network: Network, temperature: float) -> None:
    """Give the output of a trained network another prediction temperature."""
    [output] = network.outputs.values()
    # A network knows its layers by identity, so no other spec can take the place of the frozen one.
    object.__setattr__(output.spec.cosine, "prediction_temperature", temperature)


def drawn_users(dataset: Dataset, part: Part, number: int) -> np.ndarray:
    """Return some users with items to find, ascending."""
    able = np.flatnonzero(dataset.entry_counts("items", slice(None), part))
    return np.sort(np.random.default_rng(0).permutation(able)[:number])


def metrics_of(network: Network, dataset: Dataset, part: Part, rows: np.ndarray) -> Metrics:
    """Return the metrics of some users, with those of each."""
    with fixed_arithmetic():
        return evaluate(network, dataset, part, [_K], keep_users=True, rows=rows)


def metric_cells(metrics: Metrics) -> str:
    """Return Recall@20 and NDCG@20 as cells of a table."""
    return f"{metrics['recall@20']:.4f} | {metrics['ndcg@20']:.4f}"


def difference(first: Metrics, metrics: Metrics) -> str:
    """Return the difference in NDCG@20 and its interval over users as cells of a table."""
    assert first.users is not None
    assert metrics.users is not None
    column = first.users.names.index("ndcg@20")
    differences_E = metrics.users.values[:, column] - first.users.values[:, column]
    [lower], [upper] = intervals(differences_E[:, None], 0.95)
    return f"{differences_E.mean():+.4f} | {lower:+.4f} to {upper:+.4f}"
