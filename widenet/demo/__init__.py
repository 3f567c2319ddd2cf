"""The demonstration of `widenet demo`: from interactions to recommendations in a few minutes.

It uses generated books, or a folder of real interactions.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from widenet.baselines.methods import evaluate_popularity
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.invented_books import write_catalogue_csv
from widenet.data.split import split
from widenet.errors import DataError, OptionError
from widenet.runs import Model, Recommendation, train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.state import Report

_DOCUMENTS = Path(__file__).parent
_MARK = "made-by-widenet-demo"
_INTERACTIONS = (
    "interactions.csv",
    "to_read.csv",
    "ratings.csv",
    "interactions.parquet",
    "ratings.parquet",
)
_TITLES = ("titles.csv", "books.csv", "movies.csv", "items.csv")
_KS = (10, 20)
_LIKED = 3


class Demo:
    """The steps of the demonstration.

    Args:
        data: A file of interactions, or a folder with interactions (and titles) under one of the usual names;
            None generates books.
        out: Output directory, which is replaced.
        say: Called with messages.

    Raises:
        DataError: `data` has no interactions.
        OptionError: `out` holds something else than an earlier demonstration, or the data.
    """

    def __init__(self, data: Path | None, out: Path, say: Callable[[str], None]) -> None:
        self.out, self.say = out, say
        self.sources: tuple[Path, Path | None] | None = None if data is None else _sources(data)
        if data is not None and data.resolve().is_relative_to(out.resolve()):
            raise OptionError(
                f"must not hold the data, {data}: it is made anew", option="out", value=str(out)
            )
        _clear(out)

    def ingest(self) -> Dataset:
        """Make the dataset; a fifth of each user's items is held out, a tenth is for validation."""
        if self.sources is None:
            self.sources = write_catalogue_csv(self.out)
            self.say(f"Generated a catalogue: {self.sources[0]} and {self.sources[1]}")
        interactions, titles = self.sources
        whole = ingest([interactions], self.out / "whole", titles=titles)
        return split(whole, self.out / "data", heldout=0.2, validation=0.1)

    def train(self, dataset: Dataset, report: Report) -> Model:
        """Train the model; the run directory is `run` in the output directory."""
        return train(*self._documents(), dataset, self.out / "run", report=report)

    def _documents(self) -> tuple[NetworkSpec, TrainingSpec]:
        return NetworkSpec.read(_DOCUMENTS / "network.json"), TrainingSpec.read(_DOCUMENTS / "training.json")

    def compare(self, model: Model, dataset: Dataset) -> dict[str, dict[str, float]]:
        """Metrics on the held-out items, of the model and of recommending the most popular items."""
        return {
            "widenet": model.evaluate(dataset, ks=_KS),
            "popularity": evaluate_popularity(dataset, "items", "heldout", _KS),
        }

    def examples(
        self, model: Model, dataset: Dataset, number: int = 3
    ) -> list[tuple[list[str], list[Recommendation]]]:
        """For some users, the titles of items that they have, and the model's recommendations."""
        names = dataset.vocabulary("items")
        shown = []
        for row in np.linspace(0, dataset.num_examples - 1, number + 2).astype(np.int64)[1:-1]:
            history = dataset.sparse("items", np.array([row])).indices.numpy()
            shown.append((names.titles(history[:_LIKED]), model.recommend(names.ids(history), k=5)))
        return shown


def _sources(data: Path) -> tuple[Path, Path | None]:
    """The files of interactions and titles in a folder."""
    if data.is_file():
        return data, None
    interactions = next((data / name for name in _INTERACTIONS if (data / name).is_file()), None)
    if interactions is None:
        raise DataError(
            f"must be an interactions file, or a folder with one of {', '.join(_INTERACTIONS)}", place=data
        )
    return interactions, next((data / name for name in _TITLES if (data / name).is_file()), None)


def _clear(out: Path) -> None:
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).exists())):
        raise OptionError("holds something else than an earlier demonstration", place=out)
    shutil.rmtree(out, ignore_errors=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).touch()
    except OSError as error:
        raise OptionError(f"cannot be written: {error.strerror}", place=out) from None
