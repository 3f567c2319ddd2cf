"""Columns by name, and times in every way that they are written."""

import random
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from tests.mistakes import mistake
from widenet.data.formats import columns, sql
from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
TIMES = {
    "2024-05-01T12:00:00": None,
    "2024-05-01T12:00:00Z": None,
    "2024-05-01 12:00:00 UTC": None,
    "2024-05-01T14:00:00+02:00": None,
    "2024-05-01 14:00:00+0200": None,
    "2024-05-01 07:00:00-05": None,
    "2024-05-01T17:30+05:30": None,
    "2024/05/01 12:00:00": None,
    "1714564800": None,
    "01/05/2024 12:00": "%d/%m/%Y %H:%M",
    "5/1/2024 12:00 PM": "%m/%d/%Y %I:%M %p",
    "May 1, 2024 12h": "%b %d, %Y %Hh",
    "01.05.2024 14:00 +0200": "%d.%m.%Y %H:%M %z",
}


@pytest.mark.parametrize("cell", ["infinity", "-Infinity", " epoch", "", "31/12/24x", "44-03-15 (BC)"])
def test_words_and_other_formats_are_no_times(cell):
    with duckdb.connect() as database:
        for formats in ((), ("%d/%m/%y",), ("%d/%m/%y", "%Y-%m-%d")):
            assert database.execute(
                f"SELECT {sql.seconds('cell', '.', formats)} FROM (SELECT ? AS cell)", [cell]
            ).fetchone() == (None,)


@pytest.mark.parametrize("cell", TIMES)
def test_a_time_is_seconds_of_utc(cell):
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'Asia/Tokyo'")
        read = sql.seconds("cell", ".", [TIMES[cell]] if TIMES[cell] else [])
        assert database.execute(f"SELECT {read} FROM (SELECT ? AS cell)", [cell]).fetchone() == (NOON,)
        for stamp in (f"TIMESTAMPTZ '{cell}'", "TIMESTAMP '2024-05-01 12:00:00'"):
            if TIMES[cell] is None and "+" in cell:
                assert database.execute(f"SELECT {read} FROM (SELECT {stamp} AS cell)").fetchone() == (NOON,)


@pytest.mark.parametrize(
    "time_format", [None, "%d/%m/%Y", "%Y-%m-%d %H:%M:%S", "(%H:%M) %m.%Y", "%S%M%H%d%m%Y"]
)
def test_cells_that_are_read_without_duckdb_are_times_to_it_too(time_format):
    draw = random.Random(2)
    written = (
        [
            "%Y-%m-%d",
            "%Y-%m-%dT%H:%M:%S",
            "%Y-%m-%d %H:%M:%S.%fZ",
            "%Y-%m-%dT%H:%M:%SZ",
            "%Y-%m-%dT%H:%M:%S+01:00",
            "%Y-%m-%d %H:%M:%S.%f-13:45",
        ]
        if time_format is None
        else [time_format]
    )
    moments = [datetime(1000, 1, 1) + draw.random() * timedelta(days=700_000) for _ in range(50)]
    cells = [moment.strftime(draw.choice(written)) for moment in moments]
    changed = [
        "".join(
            draw.choice("0123456789") if draw.random() < 0.1 and sign.isdigit() else sign for sign in cell
        )
        for cell in cells
    ]
    given = [] if time_format is None else [time_format]
    pattern = columns._ISO if time_format is None else columns._pattern_of(time_format)
    surely = [cell for cell in [*cells, *changed] if columns._is_real_time(pattern.fullmatch(cell))]
    assert surely[:50] == cells
    with duckdb.connect() as database:
        database.register("given", pa.table({"cell": surely}))
        assert (
            database.execute(
                f"SELECT cell FROM given WHERE {sql.seconds('cell', '.', given)} IS NULL"
            ).fetchall()
            == []
        )


def test_of_several_formats_the_first_that_fits_a_cell_counts(tmp_path, source):
    rows = "u,a,1,2024-01-15\nu,a,2,02/01/2024\nu,a,3,31.12.2023\n"
    path = source("a.csv", f"user,item,rating,at\n{rows}")
    point = "%d.%m.%Y"
    for formats, value in (
        (["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", point], 1.0),
        ((point, "%m/%d/%Y", "%d/%m/%Y", "%Y-%m-%d"), 2.0),
    ):
        dataset = ingest(path, tmp_path / str(value), value="rating", time="at", time_format=formats)
        assert dataset.sparse("items", slice(None)).values.tolist() == [value]
    with mistake(DataError, line=2, column="at", option="time_format"):
        ingest(path, tmp_path / "ds", time="at", time_format=["%d/%m/%Y", point])
    with mistake(OptionError):
        ingest(path, tmp_path / "ds", time="at", time_format=[point, "yyyy"])


@pytest.mark.parametrize(
    "header", ["visitorid,sku", "customer_id,StockCode", "Client ID,product-id", "member_id,parent_asin"]
)
def test_usual_names_need_no_option(tmp_path, source, header):
    dataset = ingest(source("a.csv", f"price,{header}\n5,u,a\n6,v,b\n"), tmp_path / "ds")
    assert dataset.ids(slice(None)) == ["u", "v"]
    assert dataset.vocabulary("items").all_ids() == pa.array(["a", "b"])
