"""Times the commands of examples/movielens-20m on generated ratings of the shape and layout of its files."""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.commands import COLUMNS, measured, row, widenet
from benchmarks.places import presets
from benchmarks.results import Table, publish
from benchmarks.synthetic import draw_interactions
from widenet.data.published import Published

USERS, MOVIES, RATED, RATINGS = 138_493, 27_278, 26_744, 20_000_263
_LARGEST_ID = 131_262
_USERS_AT_ONCE = 10_000
_START, _END = 789_652_009, 1_427_784_002
"""Seconds since 1970 of the first and last rating."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--users", type=int, default=USERS, help="users of the generated ratings")
    parser.add_argument("--ratings", type=int, default=RATINGS, help="number of the generated ratings")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of each training")
    parser.add_argument("--folder", type=Path, help="folder of the work; default: the temporary folder")


def run(asked: argparse.Namespace) -> None:
    """Print a table: each command of the example, its seconds, memory and bytes."""
    with tempfile.TemporaryDirectory(prefix="widenet-benchmark-", dir=asked.folder) as name:
        table = _measure(Path(name), asked.users, asked.ratings, asked.epochs)
    print(table, flush=True)
    publish("movielens", [table], asked.out)


def write_files(folder: Path, users: int = USERS, ratings: int = RATINGS, rated: int = RATED) -> None:
    """Write `ratings.csv` and `movies.csv` as the archive of MovieLens 20M holds them, with generated rows.

    Args:
        folder: The folder to write to.
        users: Number of users.
        ratings: Number of ratings; no user rates a movie twice.
        rated: Number of movies with a rating, at most RATED.
    """
    import pyarrow as pa
    from pyarrow import csv as tables

    draw = np.random.default_rng(0)
    movies = np.sort(draw.choice(_LARGEST_ID, MOVIES, replace=False)) + 1
    with (folder / "movies.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("movieId", "title", "genres"))
        writer.writerows((movie, _title(movie), "Comedy|Drama") for movie in movies.tolist())
    of_item = draw.permutation(movies)
    schema = pa.schema(
        [
            ("userId", pa.int64()),
            ("movieId", pa.int64()),
            ("rating", pa.float64()),
            ("timestamp", pa.int64()),
        ]
    )
    options = tables.WriteOptions(quoting_style="none")
    with tables.CSVWriter(str(folder / "ratings.csv"), schema, write_options=options) as written:
        for start in range(0, users, _USERS_AT_ONCE):
            stop = min(start + _USERS_AT_ONCE, users)
            number = ratings * stop // users - ratings * start // users
            user, item = draw_interactions(range(start, stop), users, rated, number)
            order = np.lexsort((of_item[item], user))
            user, movie = user[order] + 1, of_item[item[order]]
            value = ((movie * 7 + user * 3) % 10 + 1) / 2
            time = _START + (movie * 7919 + user * 104_729) % (_END - _START)
            written.write_table(pa.table([user, movie, value, time], schema=schema))


def _title(movie: int) -> str:
    """A title of some form that titles there have: commas, quotes and letters beyond ASCII."""
    form = ("Film {} (1995)", "Film {}, The (1995)", 'The "{}" (1995)', "Café {} (Cafe {}) (2001)")[movie % 4]
    return form.format(movie, movie)


def _measure(folder: Path, users: int, ratings: int, epochs: int) -> Table:
    write_files(folder, users, ratings)
    title = f"{ratings:,} generated ratings, {users:,} users, trainings of {epochs} epochs"
    table = Table(title, COLUMNS)

    def add(name: str, out: str, *words: str) -> None:
        table.rows.append(row(name, measured(widenet(*words), folder), folder / out))
        print(f"{name}: {table.rows[-1][1]} s", flush=True)

    add(
        "data fetch, without the download",
        "whole",
        "data",
        "ingest",
        "ratings.csv",
        "--out",
        "whole",
        *_as_fetched(),
    )
    add("data split", "split", "data", "split", "whole", "--heldout", "0.2", "--out", "split")
    for name, (network, training) in presets("movielens-20m").items():
        document = f"{name}-training.json"
        changed = {**json.loads(training.read_text("utf-8")), "epochs": epochs}
        (folder / document).write_text(json.dumps(changed), "utf-8")
        train = ("train", str(network), document, "--data", "split", "--out", name, "--quiet")
        add(f"train, {network.name}", name, *train)
        add(f"evaluate, {network.name}", "none", "evaluate", name, "--data", "split", "-k", "10")
    return table


def _as_fetched() -> list[str]:
    """The options by which `widenet data fetch movielens-20m --min-value 0.5` ingests."""
    wanted = {**Published.find("movielens-20m").ingest, "min_value": 0.5}
    words = [word for name, value in wanted.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [*words, "--titles", "movies.csv", "--title-id", "movieId"]
