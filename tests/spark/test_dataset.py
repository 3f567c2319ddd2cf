"""A dataset that Spark writes has the bytes of one that ingest makes of the same rows."""

import datetime
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError, StoreError

pytest.importorskip("pyspark", reason="pyspark is not installed; `make test-spark` installs it")
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

TO_READ = Path(os.environ.get("WIDENET_DATA", ""), "goodbooks-10k", "to_read.csv")

AWKWARD = [
    *("7", "007", "0", "-0", "00", "-12", "12 ", " ", "Ä", "A", "a", "é", "e\u0301", "\U0001f600", "\ue000"),
    *(
        "1" * 38,
        "1" * 39,
        "-" + "9" * 38,
        "null",
        "NaN",
        "x\ty",
        'q"',
        "a,b",
        "a\nb",
        "7\n",
        "tail",
        "long" * 500,
    ),
]


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_both(spark, tmp_path, table, **options):
    """The files that Spark writes, and those that ingest writes, of one Parquet file."""
    from widenet.spark import write_dataset

    path = tmp_path / "some rows.v1.parquet"
    pq.write_table(table, path, row_group_size=97)
    written = write_dataset(
        spark.read.parquet(str(path)), tmp_path / "spark", user="u", item="the `i.d`", **options
    )
    ingest(path, tmp_path / "ingest", user="u", item="the `i.d`", **options)
    assert written.path == tmp_path / "spark"
    return files_of(tmp_path / "spark"), files_of(tmp_path / "ingest")


def awkward_rows(users, items, num_rows=3000):
    draw = random.Random(3)
    return pa.table(
        {
            "u": [draw.choice(users) for _ in range(num_rows)],
            "the `i.d`": [draw.choice(items) for _ in range(num_rows)],
            "score": [draw.choice([0.1, -0.0, 0.0, 3.0, 1e30, -2.5e-40, 1 / 3]) for _ in range(num_rows)],
            "at": [draw.choice([0.0, -1.5, 1714521600.25, 1e300, 7.0]) for _ in range(num_rows)],
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"value": "score"},
        {"value": "score", "time": "at", "keep_times": True},
        {"value": "score", "time": "at", "duplicates": "first"},
        {"value": "score", "duplicates": "sum", "field": "books", "name": "of sums"},
    ],
)
def test_awkward_names_and_repeated_rows_give_the_bytes_of_ingest(spark, tmp_path, monkeypatch, options):
    monkeypatch.setattr("widenet.spark.dataset_directory.ROWS_PER_TASK", 700)
    by_spark, by_ingest = write_both(spark, tmp_path, awkward_rows(AWKWARD, AWKWARD), **options)
    assert by_spark == by_ingest


@pytest.mark.usefixtures("caches")
def test_a_dataset_in_a_store_has_the_bytes_of_ingest(spark, store, tmp_path, monkeypatch):
    from widenet.spark import write_dataset

    monkeypatch.setattr("widenet.spark.dataset_directory.ROWS_PER_TASK", 700)
    rows, options = awkward_rows(AWKWARD, AWKWARD), {"value": "score", "time": "at", "keep_times": True}
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    frame = spark.read.parquet(str(path))
    write_dataset(frame, "s3://shelf/books", user="u", item="the `i.d`", **options)
    ingest(path, tmp_path / "ingest", user="u", item="the `i.d`", **options)
    assert store.published("books") == files_of(tmp_path / "ingest")
    with mistake(StoreError, place="s3://shelf/books"):
        write_dataset(frame, "s3://shelf/books", user="u", item="the `i.d`")
    store.refuse_put(1)
    with mistake(StoreError, place="s3://shelf/other"):
        write_dataset(frame, "s3://shelf/other", user="u", item="the `i.d`")
    assert store.published("other") is None


def test_whole_numbers_are_ordered_by_value(spark, tmp_path):
    numbers = [0, 9, 10, -3, 2**31, -(2**63), 2**63 - 1, 100]
    table = awkward_rows(numbers, ["1" * 38, "-1", "20", "3", "003", "-0", "0"])
    by_spark, by_ingest = write_both(spark, tmp_path, table, value="score")
    assert by_spark == by_ingest


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(), pa.int64(), pa.int8()], ids=str
)
def test_times_of_every_type_are_read_as_ingest_reads_them(spark, tmp_path, kind):
    first = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    times = [first + datetime.timedelta(days=90 * n, microseconds=n**3) for n in range(100)]
    if pa.types.is_integer(kind):
        times = range(-50, 50)
    column = pa.array(times).cast(kind, safe=False)
    table = pa.table(
        {"u": [n % 9 for n in range(100)], "the `i.d`": [n % 7 for n in range(100)], "at": column}
    )
    by_spark, by_ingest = write_both(spark, tmp_path, table, time="at", keep_times=True)
    assert by_spark == by_ingest


@pytest.mark.skipif(not TO_READ.is_file(), reason="WIDENET_DATA has no goodbooks-10k")
def test_real_books_give_the_bytes_of_ingest(spark, tmp_path):
    from widenet.spark import write_dataset

    rows = spark.read.csv(str(TO_READ), header=True)
    write_dataset(rows, tmp_path / "spark", user="user_id", item="book_id")
    ingest(TO_READ, tmp_path / "ingest")
    assert files_of(tmp_path / "spark") == files_of(tmp_path / "ingest")


@pytest.mark.parametrize(
    ("query", "options", "column"),
    [
        ("SELECT 'a' AS user, 1 AS item", {"item": "book"}, "book"),
        ("SELECT 'a' AS user, 1 AS item", {"item": "user"}, "user"),
        ("SELECT 'a' AS user, 1 AS item, 2 AS item", {}, "item"),
        ("SELECT 'a' AS user, 1.5D AS item", {}, "item"),
        ("SELECT 'a' AS user, array(1) AS item", {}, "item"),
        ("SELECT 'a' AS user, 1 AS item, 'x' AS value", {"value": "value"}, "value"),
        ("SELECT 'a' AS user, 1 AS item, 'x' AS time", {"time": "time"}, "time"),
        ("SELECT 'a' AS user, 1 AS item, 9007199254740992L AS time", {"time": "time"}, "time"),
        ("SELECT explode(array('a', null, '')) AS user, 1 AS item", {}, "user"),
        ("SELECT 'a' AS user, cast(null AS int) AS item", {}, "item"),
        ("SELECT 'a' AS user, 1 AS item, double('NaN') AS v", {"value": "v"}, "v"),
        ("SELECT 'a' AS user, 1 AS item, 1e39D AS v", {"value": "v"}, "v"),
        ("SELECT 'a\\u0000b' AS user, 1 AS item", {}, "user"),
        ("SELECT cast(X'ff' AS string) AS user, 1 AS item", {}, "user"),
        ("SELECT 'a' AS user, 1 AS item WHERE false", {}, None),
    ],
)
def test_wrong_rows_are_refused_and_leave_nothing(spark, tmp_path, query, options, column):
    from widenet.spark import write_dataset

    with mistake(DataError, place="the DataFrame", column=column):
        write_dataset(spark.sql(query), tmp_path / "ds", **({"user": "user", "item": "item"} | options))
    assert list(tmp_path.iterdir()) == []


def test_wrong_options_are_refused(spark, tmp_path):
    from widenet.spark import write_dataset

    rows = spark.sql("SELECT 'a' AS user, 1 AS item")
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "notes").write_text("mine")
    with mistake(DataError, place=tmp_path / "ds"):
        write_dataset(rows, tmp_path / "ds", user="user", item="item")
    with mistake(OptionError, option="path"):
        write_dataset(rows, "s3a://bucket/ds", user="user", item="item")
    with mistake(OptionError, option="df"):
        write_dataset([("a", 1)], tmp_path / "other", user="user", item="item")
    with mistake(OptionError):
        write_dataset(rows, tmp_path / "other", user="user", item="item", duplicates="last")
