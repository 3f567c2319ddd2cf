"""Changes one setting of the default documents at a time, and compares them on validation parts."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import usual
from benchmarks.places import workplace
from benchmarks.results import processor
from widenet import Dataset, split, train
from widenet.data.catalogue import write_catalogue_csv

Change = dict[str, float]
"""Values of settings, by their names."""

_SHARE = 0.1
"""Share of each user's items for validation."""
_SETTINGS = {"units": int, "epochs": int, "learning_rate": float, "popularity_damping": float}
_CHANGES: dict[str, tuple[Any, ...]] = {
    "units": (64, 128, 256),
    "learning_rate": (0.005, 0.01, 0.02),
    "epochs": (3, 5, 10, 20),
    "popularity_damping": (0.25, 0.5),
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--sets", nargs="+", choices=[*_SETS], default=[*_SETS], help="data sets")
    parser.add_argument("--units", type=int, default=128, help="most units of the default documents")
    parser.add_argument(
        "--changes",
        type=_change,
        nargs="*",
        default=[{name: value} for name, values in _CHANGES.items() for value in values],
        metavar="SETTING=VALUE",
        help=f"one row each, several settings with commas; settings: {', '.join(_SETTINGS)}",
    )


def run(asked: argparse.Namespace) -> None:
    """Print NDCG@20 of the validation part for the default documents, and for each change of them."""
    columns = ("data", "units", "epochs", "learning rate", "damping", "validation NDCG@20")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name in asked.sets:
        with workplace() as folder:
            _SETS[name](folder)
            dataset = split(folder / "data", folder / "parted", validation=_SHARE)
            tried = []
            for change in ({}, *asked.changes):
                settings = _settings(dataset, {"units": asked.units, **change})
                if settings not in tried:
                    tried.append(settings)
                    row = _measured(dataset, settings, folder / str(len(tried)))
                    print(f"| {name} | {row} |", flush=True)
    print(f"\nProcessor: {processor()}.")


def _change(text: str) -> Change:
    """Return the values in a text such as "units=128,epochs=5"."""
    change: Change = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in _SETTINGS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(_SETTINGS)}")
        change[name] = _SETTINGS[name](value)
    return change


def _documents(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the default documents, without the term, which `neighbourhoods --default` chooses."""
    network, training = usual.default_documents(dataset)
    network["layers"][-1].pop("neighbourhood", None)
    return network, training


def _settings(dataset: Dataset, change: Change) -> Change:
    """Return all settings: those of a change, and else the default ones."""
    network, training = _documents(dataset)
    history, taste = network["layers"][:2]
    default = {
        "units": taste["units"],
        "epochs": training["epochs"],
        "learning_rate": training["optimizer"]["learning_rate"],
        "popularity_damping": history["popularity_damping"],
    }
    return default | change


def _measured(dataset: Dataset, settings: Change, out: Path) -> str:
    """Train, and return the cells of a row."""
    network, training = _documents(dataset)
    usual.set_units(network, int(settings["units"]))
    network["layers"][0]["popularity_damping"] = settings["popularity_damping"]
    training["optimizer"]["learning_rate"] = settings["learning_rate"]
    model = train(network, {**training, "epochs": settings["epochs"]}, dataset, out)
    found = model.evaluate(dataset, "validation", ks=(20,))["ndcg@20"]
    return " | ".join([*(f"{value:g}" for value in settings.values()), f"{found:.4f}"])


def _prepare_described(folder: Path) -> None:
    """Make the dataset "data" of the demo's generated books, with vectors of their genres."""
    interactions, titles = write_catalogue_csv(folder / "csv")
    usual.hold_out(interactions, folder, items=titles, items_sparse={"genre": "genre"})


_SETS: dict[str, Callable[[Path], None]] = {
    **{name: prepare for name, (prepare, _) in usual.SETS.items()},
    "catalogue by genre": _prepare_described,
}
"""How each set is made."""
