"""Changes one setting of a preset at a time, and compares the trainings on a validation part."""

import argparse
import json
from pathlib import Path

from benchmarks import changes
from benchmarks.changes import Change, Documents
from benchmarks.neighbourhoods import PRESETS, difference, drawn_users, metric_cells, metrics_of, prepared
from benchmarks.places import presets, workplace
from benchmarks.results import processor
from widenet import train
from widenet.metrics.ranking import Metrics

_PLACES: changes.Places = {
    "denoise": (0, "layers", 0, "denoise"),
    "popularity_damping": (0, "layers", 0, "popularity_damping"),
    "units": (0, "layers", 1, "units"),
    "deviation": (0, "layers", 1, "initializer", "deviation"),
    "targets": (0, "layers", 2, "loss", "targets"),
    "temperature": (0, "layers", 2, "cosine", "temperature"),
    "prediction_temperature": (0, "layers", 2, "cosine", "prediction_temperature"),
    "bias": (0, "layers", 2, "bias"),
    "other": (0, "layers", 2, "delta_boost", "other"),
    "neighbourhood": (0, "layers", 2, "neighbourhood"),
    "weight": (0, "layers", 2, "neighbourhood", "weight"),
    "popularity": (0, "layers", 2, "neighbourhood", "popularity"),
    **changes.TRAINING,
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("preset", choices=PRESETS, help="a folder of examples")
    parser.add_argument(
        "--ordered",
        type=Path,
        help="hold out the last items of each line of this file, the published train.txt of Gowalla",
    )
    parser.add_argument("--share", type=float, default=0.2, help="share of each user's items for validation")
    parser.add_argument(
        "--users", type=int, default=6000, help="number of users to evaluate, drawn at random"
    )
    parser.add_argument("--units", type=int, help="units in place of the preset's, for less time")
    changes.add_option(parser, _PLACES)


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 of the preset, and of each change of it."""
    with workplace() as folder:
        dataset, part = prepared(asked, folder)
        rows = drawn_users(dataset, part, asked.users)
        units = asked.units or _changed(asked.preset, {})[0]["layers"][1]["units"]
        print(f"{asked.preset}, {units} units, {len(rows):,} users, {asked.share:.0%} of each user's items\n")
        print("| change | Recall@20 | NDCG@20 | difference | 95 % |\n|---|---|---|---|---|")
        preset: Metrics | None = None
        for number, change in enumerate([{}, *asked.changes]):
            documents = _changed(asked.preset, {"units": units} | change)
            model = train(*documents, dataset, folder / str(number))
            metrics = metrics_of(model.network, dataset, part, rows)
            compared = "- | -" if preset is None else difference(preset, metrics)
            preset = preset or metrics
            print(f"| {changes.shown(change)} | {metric_cells(metrics)} | {compared} |", flush=True)
    print(f"\nProcessor: {processor()}.")


def _changed(preset: str, change: Change) -> Documents:
    """Return the documents of "neighbours" with other values.

    Another temperature changes the prediction temperature in proportion, unless a change names it.
    """
    network, training = (json.loads(path.read_text("utf-8")) for path in presets(preset)["neighbours"])
    cosine = network["layers"][2]["cosine"]
    if "temperature" in change and "prediction_temperature" in cosine:
        proportion = change["temperature"] / cosine["temperature"]
        change = {"prediction_temperature": cosine["prediction_temperature"] * proportion} | change
    documents = network, training
    changes.apply(change, documents, _PLACES)
    return documents
