"""Compares the default documents with tuned ones on five sets, real and generated."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import days, goodbooks, gowalla
from benchmarks.places import DATA, presets, workplace
from widenet import Dataset, Model, ingest, split, train
from widenet.data.invented_books import write_catalogue_csv
from widenet.predict.terms import count_neighbours
from widenet.runs.documents import documents
from widenet.runs.neighbourhood import set_terms
from widenet.spec.network import NetworkSpec
from widenet.training.run_directory import RunDirectory

Documents = tuple[Any, Any]
"""A network and a training, as `train` takes them."""

_KS = (20,)
_LENGTH = 0.9
"""Length of an item's vector at first, as in the presets."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--sets", nargs="+", choices=sorted(SETS), default=list(SETS), help="data sets")
    sets.add_argument(
        "--splits", nargs="+", type=Path, help="folders of other sets, each with train.txt and test.txt"
    )
    parser.add_argument("--share", type=float, default=0.1, help="share of each user's items for validation")
    parser.add_argument("--units", type=int, help="most units of every network, for less time")
    parser.add_argument(
        "--no-tuned", dest="tuned", action="store_false", help="train the default documents alone"
    )


def run(asked: argparse.Namespace) -> None:
    """Print metrics of tuned and of default documents, trained beside a validation part and without one."""
    print("| data | documents | validation NDCG@20 | Recall@20 | NDCG@20 | s |\n|---|---|---|---|---|---|")
    sets = [(name, *SETS[name]) for name in asked.sets]
    for name, prepare, tuned in sets if asked.splits is None else map(_published, asked.splits):
        with workplace() as folder:
            prepare(folder)
            whole = Dataset.open(folder / "data")
            parted = split(folder / "data", folder / "parted", validation=asked.share)
            if asked.tuned:
                row = _measured(*_trained(tuned, parted, folder / "tuned", asked.units), parted)
                print(f"| {name} | tuned | {row} |", flush=True)
            model, seconds = _trained((None, None), parted, folder / "default", asked.units)
            print(f"| {name} | default | {_measured(model, seconds, parted)} |", flush=True)
            fitted = model.run.network, documents(None, None, whole)[1]
            _unfit(model, parted)
            print(f"| {name} | default, its term not fitted | {_measured(model, None, parted)} |", flush=True)
            model, seconds = _trained(fitted, whole, folder / "all", asked.units)
            row = _measured(model, seconds, whole)
            print(f"| {name} | default, all interactions | {row} |", flush=True)


def _trained(both: Documents, data: Dataset, out: Path, most_units: int | None) -> tuple[Model, float]:
    """Train; return the model and the seconds."""
    network, training = documents(*both, data)
    started = time.perf_counter()
    model = train(network if most_units is None else _narrowed(network, most_units), training, data, out)
    return model, time.perf_counter() - started


def _unfit(model: Model, data: Dataset) -> None:
    """Give a model the term that its training began with."""
    name, [before] = "next", RunDirectory.open(model.run.path).network.outputs
    set_terms(model.network, name, neighbourhood=before.neighbourhood)
    count_neighbours(model.network.outputs[name], data)


def _measured(model: Model, seconds: float | None, data: Dataset) -> str:
    """Return the cells of a model that took so long; None for one without a training of its own."""
    chosen = "-"
    if "validation" in data.field("items").parts:
        chosen = f"{model.evaluate(data, 'validation', ks=_KS)['ndcg@20']:.4f}"
    found = model.evaluate(data, ks=_KS)
    took = "-" if seconds is None else f"{seconds:.0f}"
    return f"{chosen} | {found['recall@20']:.4f} | {found['ndcg@20']:.4f} | {took}"


def _narrowed(network: NetworkSpec, most_units: int) -> dict[str, Any]:
    """Return a document with fewer units."""
    document: dict[str, Any] = network.model_dump(mode="json", exclude_unset=True)
    set_units(document, min(most_units, document["layers"][1]["units"]))
    return document


def set_units(network: dict[str, Any], units: int) -> None:
    """Change the units of a network, whose vectors stay as long at first."""
    taste = network["layers"][1]
    taste["units"] = units
    taste["initializer"]["deviation"] = round(_LENGTH / units**0.5, 3)


def default_documents(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the default documents for a dataset, as plain values; a term is not fitted."""
    specs = documents(None, None, dataset)
    network, training = (spec.model_dump(mode="json", exclude_unset=True) for spec in specs)
    for layer in network["layers"]:
        if layer.get("neighbourhood"):
            del layer["neighbourhood"]["fit"]
    return network, training


def _preset(name: str) -> Documents:
    """Return a preset of the examples."""
    return presets(name)["best"]


def _tuned(damping: float, epochs: int, batch_size: int) -> Documents:
    """Return the preset of goodbooks with other values, which were the best on the validation part."""
    network, training = (json.loads(path.read_text("utf-8")) for path in presets("goodbooks")["best"])
    network["layers"][0]["popularity_damping"] = damping
    return network, {**training, "epochs": epochs, "batch_size": batch_size}


def _prepare_movielens(folder: Path) -> None:
    """Make the dataset "data": 1,024 users of MovieLens 20M, a fifth of each user's films held out."""
    pairs = []
    for line in (DATA / "dsstne-movielens" / "movielens_input_1024.txt").read_text("utf-8").splitlines():
        user, films = line.split("\t")
        pairs += [(user, film.split(",")[0]) for film in films.split(":") if film]
    hold_out(pairs, folder)


def _prepare_catalogue(folder: Path) -> None:
    """Make the dataset "data" of the demo's generated books."""
    interactions, _ = write_catalogue_csv(folder / "csv")
    hold_out(interactions, folder)


def _prepare_topics(folder: Path) -> None:
    """Make the dataset "data" of generated users who choose by topics, on one day."""
    hold_out(days.World.of(0).choose(range(days.USERS), days.FIRST, 0), folder)


def _published(source: Path) -> tuple[str, Callable[[Path], None], Documents]:
    """Return a published split's name and how it is made, with the documents for Gowalla as tuned ones."""
    return source.name, lambda folder: gowalla.prepare_split(folder, source), _preset("gowalla")


def hold_out(interactions: Any, folder: Path, **options: Any) -> None:
    """Make the dataset "data" of interactions: a fifth of each user's items is held out."""
    ingest(interactions, folder / "whole", **options)
    split(folder / "whole", folder / "data", heldout=0.2)


SETS: dict[str, tuple[Callable[[Path], None], Documents]] = {
    "gowalla": (gowalla.prepare, _preset("gowalla")),
    "goodbooks": (goodbooks.prepare, _preset("goodbooks")),
    "movielens": (_prepare_movielens, _tuned(0.25, 20, 64)),
    "catalogue": (_prepare_catalogue, _tuned(0.5, 8, 256)),
    "topics": (_prepare_topics, _preset("goodbooks")),
}
"""How each set is made, and the documents to compare with; nobody has tuned any for the last set."""
