"""A CSV file of ratings to what training reads: widenet, and SciPy with pandas, Polars or DuckDB."""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish
from benchmarks.synthetic import draw_histories
from widenet.plan.machine import used_memory
from widenet.stores.durable import force_to_disk

ROWS, ITEMS = 20_000_000, 27_278
MEMORY = "600MB"
_USERS_AT_ONCE = 8192
RIVALS = (
    ("pandas and SciPy", "pandas", ["pandas", "scipy"]),
    ("pandas with PyArrow, and SciPy", "pandas_arrow", ["pandas", "pyarrow", "scipy"]),
    ("Polars and SciPy", "polars", ["polars", "scipy"]),
    ("DuckDB and SciPy", "duckdb", ["duckdb", "scipy"]),
    ("SQL alone, in DuckDB with 400 MB", "sql", ["duckdb"]),
    ("pandas and SciPy, as they come", "pandas_as_they_come", ["pandas", "scipy"]),
)
"""Rivals: name, function, libraries."""
_JOBS = (
    "All but the last give the same rows: of a user's repeated items the one of the largest value, users"
    " in the order of their ids, items by falling count, the rows ascending and forced to disk. widenet"
    ' checks every cell besides, and writes names and checksums. "As they come" merges nothing and numbers'
    " ids as they first appear."
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS,
        help="ratings in the file; 100000000 shows that memory stays bounded",
    )
    parser.add_argument(
        "--memory", default=MEMORY, help="what one of the programs may take over what it has at its start"
    )
    parser.add_argument(
        "--alone", action="store_true", help="leave the rivals out; pandas needs 11 GB for 100000000 ratings"
    )
    parser.add_argument("--rounds", type=int, default=3, help="times that every program reads the file")


def run(asked: argparse.Namespace) -> None:
    """Print a table: seconds and peak memory of each program."""
    with workplace() as folder:
        users = write_ratings(folder / "ratings.csv", asked.rows)
        size = (folder / "ratings.csv").stat().st_size
        job, ours = {"folder": str(folder)}, ["widenet", "duckdb"]
        programs = [
            Program("widenet", "benchmarks.ingest:widenet", job, ours),
            Program(
                f"widenet, memory {asked.memory}",
                "benchmarks.ingest:widenet",
                {**job, "memory": asked.memory},
                ours,
            ),
        ]
        for name, place, libraries in RIVALS:
            programs.append(Program(name, f"benchmarks.ingest:{place}", job, libraries))
        programs = programs[:2] if asked.alone else programs
        table = _table(measure(programs, asked.rounds, 0.0, warmup=0), asked.rows)
        table.notes.append(
            f"{users:,} users, {ITEMS:,} items, a file of {size / 1e9:.2f} GB. Peak: all memory of the"
            " process."
        )
        table.notes.append(_JOBS)
    print(table, flush=True)
    publish("ingest", [table], asked.out)


def _table(found: list[Measured], rows: int) -> Table:
    table = Table(
        f"{rows:,} ratings, CSV",
        ["program", "time / widenet's", "ms", "rows a second", "CPU s", "peak GB", "over its start GB"],
    )
    for measured in found:
        if measured.problem is None and found[0].problem is None:
            for counted in ("users", "entries"):
                assert measured.facts[counted] == found[0].facts[counted], (
                    f"{measured.program.name} read other {counted}"
                )
            facts = measured.facts
            peak, start = facts["peak_bytes"], facts.get("start_bytes")
            over = "" if start is None else f"{(peak - start) / 1e9:.2f}"
            further = (
                f"{rows / measured.median:,.0f}",
                f"{facts['cpu_seconds']:.1f}",
                f"{peak / 1e9:.2f}",
                over,
            )
            table.add(measured, found[0], *further)
        else:
            table.add(measured, found[0])
    return table


def write_ratings(path: Path, rows: int) -> int:
    """Write exactly so many ratings, user after user as MovieLens has them, no item twice for one user.

    Gives the number of users.
    """
    import pyarrow as pa
    from pyarrow import csv

    schema = pa.schema([("user_id", pa.int64()), ("item_id", pa.int64()), ("rating", pa.float64())])
    users = 0
    with csv.CSVWriter(str(path), schema) as writer:
        while rows:
            histories = draw_histories(ITEMS, _USERS_AT_ONCE, seed=users)
            user = np.repeat(
                np.arange(users, users + len(histories)), [len(history) for history in histories]
            )[:rows]
            item = np.concatenate(histories)[:rows]
            rating = (1 + (item * 7 + user * 3) % 9) / 2 + 0.5
            writer.write_table(pa.table([user, item, rating], schema=schema))
            rows -= len(user)
            users = int(user[-1]) + 1
    return users


def widenet(folder: str, memory: str | None = None) -> Callable[[int], dict[str, Any]]:
    """Ids, vocabulary by falling count, values, checksums: a dataset directory, forced to disk."""
    from widenet.data.ingest import Options, ingest_with

    out, start = Path(folder) / f"widenet-{memory}", used_memory()

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        shutil.rmtree(out, ignore_errors=True)
        manifest = ingest_with(Options(Path(folder) / "ratings.csv", out, value="rating", memory=memory))
        entries = round(manifest.entries_per_example["items"] * manifest.num_examples)
        return {"users": manifest.num_examples, "entries": entries, "start_bytes": start}

    return steps


def pandas(folder: str, engine: str | None = None) -> Callable[[int], dict[str, Any]]:
    """The same rows as a CSR matrix: one .npz file without compression, and the ids beside it."""
    import pandas as library

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        ratings = library.read_csv(f"{folder}/ratings.csv", engine=engine)
        ratings = ratings.sort_values("rating").drop_duplicates(["user_id", "item_id"], keep="last")
        users, user_ids = library.factorize(ratings["user_id"], sort=True)
        counts = ratings["item_id"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
        items = library.Categorical(ratings["item_id"], categories=counts.index).codes
        values = ratings["rating"].to_numpy(np.float32)
        return _written(folder, values, users, items, user_ids.to_numpy(), counts.index.to_numpy())

    return steps


def pandas_arrow(folder: str) -> Callable[[int], dict[str, Any]]:
    """The same, with the threads of PyArrow's reader."""
    return pandas(folder, engine="pyarrow")


def polars(folder: str) -> Callable[[int], dict[str, Any]]:
    """The same by Polars, lazily."""
    import polars as library

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        rows = (
            library.scan_csv(f"{folder}/ratings.csv")
            .group_by("user_id", "item_id")
            .agg(library.max("rating"))
        )
        ratings = rows.collect()
        users = ratings.select(library.col("user_id").unique().sort()).with_row_index("user")
        items = ratings.group_by("item_id").len().sort(["len", "item_id"], descending=[True, False])
        items = items.select("item_id").with_row_index("item")
        ratings = ratings.join(users, on="user_id").join(items, on="item_id")
        values = ratings["rating"].cast(library.Float32).to_numpy()
        numbers = ratings["user"].to_numpy(), ratings["item"].to_numpy()
        return _written(folder, values, *numbers, users["user_id"].to_numpy(), items["item_id"].to_numpy())

    return steps


def duckdb(folder: str) -> Callable[[int], dict[str, Any]]:
    """The same by DuckDB, in SQL."""
    import duckdb as library

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        database = library.connect(config={"threads": THREADS})
        database.execute(
            f"create table ratings as select user_id, item_id, max(rating)::float as rating"
            f" from read_csv('{folder}/ratings.csv') group by user_id, item_id"
        )
        database.execute(
            "create table users as select user_id, (row_number() over (order by user_id) - 1)::int as user"
            " from (select distinct user_id from ratings)"
        )
        database.execute(
            "create table items as select item_id, (row_number() over (order by count(*) desc, item_id) - 1)"
            "::int as item from ratings group by item_id"
        )
        found = database.execute(
            "select rating, users.user, items.item from ratings join users using (user_id) join items using"
            " (item_id)"
        ).fetchnumpy()
        user_ids = database.execute("select user_id from users order by user").fetchnumpy()["user_id"]
        item_ids = database.execute("select item_id from items order by item").fetchnumpy()["item_id"]
        return _written(folder, found["rating"], found["user"], found["item"], user_ids, item_ids)

    return steps


def sql(folder: str) -> Callable[[int], dict[str, Any]]:
    """The same rows in order, by DuckDB's SQL within a limit of memory; they are counted, not written."""
    import duckdb as library

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        database = library.connect(config={"threads": THREADS, "memory_limit": "400MB"})
        database.execute(f"set temp_directory = '{folder}/spilled'; set preserve_insertion_order = false")
        database.execute(
            f"create table ratings as select user_id, item_id, max(rating)::float as rating"
            f" from read_csv('{folder}/ratings.csv') group by user_id, item_id"
        )
        database.execute(
            "create table users as select user_id, row_number() over (order by user_id) - 1 as user"
            " from (select distinct user_id from ratings)"
        )
        database.execute(
            "create table items as select item_id, row_number() over (order by count(*) desc, item_id) - 1"
            " as item from ratings group by item_id"
        )
        ordered = (
            "select users.user, items.item, rating from ratings join users using (user_id)"
            " join items using (item_id) order by users.user, items.item"
        )
        entries = sum(batch.num_rows for batch in database.sql(ordered).to_arrow_reader(2**18))
        [(users,)] = database.execute("select count(*) from users").fetchall()
        return {"users": users, "entries": entries}

    return steps


def _written(
    folder: str,
    values: np.ndarray,
    users: np.ndarray,
    items: np.ndarray,
    user_ids: np.ndarray,
    item_ids: np.ndarray,
) -> dict[str, Any]:
    """Write rows as a CSR matrix in order of items, and the ids, forced to disk."""
    from scipy.sparse import csr_matrix, save_npz

    matrix = csr_matrix((values, (users, items)), shape=(len(user_ids), len(item_ids)))
    matrix.sort_indices()
    save_npz(f"{folder}/ratings.npz", matrix, compressed=False)
    np.save(f"{folder}/users.npy", user_ids)
    np.save(f"{folder}/items.npy", item_ids)
    for name in ("ratings.npz", "users.npy", "items.npy"):
        force_to_disk(Path(folder) / name)
    return {"users": matrix.shape[0], "entries": matrix.nnz}


def pandas_as_they_come(folder: str) -> Callable[[int], dict[str, Any]]:
    """Number ids as they appear and let SciPy merge repeats; writes an uncompressed .npz file and the ids."""
    import pandas as library
    from scipy.sparse import csr_matrix, save_npz

    def steps(number: int) -> dict[str, Any]:
        assert number == 1
        ratings = library.read_csv(f"{folder}/ratings.csv")
        users, user_ids = library.factorize(ratings["user_id"])
        items, item_ids = library.factorize(ratings["item_id"])
        values = ratings["rating"].to_numpy(np.float32)
        matrix = csr_matrix((values, (users, items)), shape=(len(user_ids), len(item_ids)))
        save_npz(f"{folder}/ratings.npz", matrix, compressed=False)
        np.save(f"{folder}/users.npy", user_ids.to_numpy())
        np.save(f"{folder}/items.npy", item_ids.to_numpy())
        return {"users": matrix.shape[0], "entries": matrix.nnz}

    return steps
