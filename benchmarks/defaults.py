"""Changes one setting of the default documents at a time, and compares them on validation parts."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import changes, usual
from benchmarks.changes import Change, Documents
from benchmarks.places import workplace
from benchmarks.results import processor
from widenet import Dataset, split, train
from widenet.data.invented_books import write_catalogue_csv

_SHARE = 0.1
"""Share of each user's items for validation."""
_PLACES: changes.Places = {
    "units": (0, "layers", 1, "units"),
    "epochs": changes.TRAINING["epochs"],
    "learning_rate": changes.TRAINING["learning_rate"],
    "popularity_damping": (0, "layers", 0, "popularity_damping"),
}
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
    usual_changes = [{name: value} for name, values in _CHANGES.items() for value in values]
    changes.add_option(parser, _PLACES, usual_changes)


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


def _documents(dataset: Dataset) -> Documents:
    """Return the default documents, without the term, which `neighbourhoods --default` chooses."""
    network, training = usual.default_documents(dataset)
    network["layers"][-1].pop("neighbourhood", None)
    return network, training


def _settings(dataset: Dataset, change: Change) -> Change:
    """Return all settings: those of a change, and else the default ones."""
    documents = _documents(dataset)
    return {name: changes.value_at(place, documents) for name, place in _PLACES.items()} | change


def _measured(dataset: Dataset, settings: Change, out: Path) -> str:
    """Train, and return the cells of a row."""
    documents = _documents(dataset)
    changes.apply(settings, documents, _PLACES)
    usual.set_units(documents[0], settings["units"])
    found = train(*documents, dataset, out).evaluate(dataset, "validation", ks=(20,))["ndcg@20"]
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
