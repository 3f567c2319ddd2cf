"""Measures how long Spark takes to write a dataset, beside ingest of the same files on one machine."""

import argparse
import filecmp
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.places import workplace
from widenet.data.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

ROWS = 10_000_000
MASTER = "local-cluster[2,1,4096]"
_ITEMS = 100_000
_ROWS_PER_USER = 20


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rows", type=int, default=ROWS, help="interactions of the DataFrame")
    parser.add_argument("--master", default=MASTER, help="the Spark to measure; its executors share the disk")


def run(asked: argparse.Namespace) -> None:
    """Print a table: seconds, rows a second and the driver's memory; then whether the bytes are equal."""
    from pyspark.sql import SparkSession

    import widenet.spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(asked.master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.executor.memory", "2g").config("spark.driver.memory", "1g").getOrCreate()
    with workplace() as folder:
        _write_rows(spark, folder / "rows", asked.rows)
        print("| program | seconds | rows a second |\n|---|---|---|", flush=True)
        frame = spark.read.parquet(str(folder / "rows"))
        columns: dict[str, Any] = {"user": "user", "item": "item", "value": "rating"}
        _timed(
            f"`write_dataset` on {asked.master}",
            asked.rows,
            lambda: widenet.spark.write_dataset(frame, folder / "spark", **columns),
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        spark.stop()
        files = sorted((folder / "rows").glob("*.parquet"))
        _timed("`ingest`", asked.rows, lambda: ingest(files, folder / "ingest", **columns))
        names = sorted(path.name for path in (folder / "ingest").iterdir())
        _, differ, missing = filecmp.cmpfiles(folder / "ingest", folder / "spark", names, shallow=False)
        size = sum((folder / "spark" / name).stat().st_size for name in names) / 1e6
        print(
            f"\n{asked.rows:,} rows, a dataset of {size:,.0f} MB; Python in the driver took {peak:.2f} GB at"
            f" most. Files that differ: {', '.join(differ + missing) or 'none'}."
        )


def _timed(name: str, rows: int, work: Callable[[], object]) -> None:
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    print(f"| {name} | {seconds:,.1f} | {rows / seconds:,.0f} |", flush=True)


def _write_rows(spark: "SparkSession", folder: Path, rows: int) -> None:
    """Write rows as Parquet: users of about 20 items in random order, items that few or many users have."""
    from pyspark.sql import functions as F  # noqa: N812 its usual name

    def draw(number: int, end: int) -> "Column":
        return F.pmod(F.xxhash64(F.lit(number), "id"), F.lit(end))

    share = draw(1, 2**30) / 2**30
    spark.range(0, rows, 1, 8).select(
        draw(0, max(1, rows // _ROWS_PER_USER)).alias("user"),
        F.floor(share * share * share * _ITEMS).alias("item"),
        ((draw(2, 9) + 2) / 2).alias("rating"),
    ).write.parquet(folder.as_uri())
