"""Attributes of items: read and typed from every kind of source, kept in datasets, splits and runs."""

import datetime
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.mistakes import mistake
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.split import split
from widenet.errors import DataError

ITEMS = """item,title,genre,in_stock,year,price,added,seen,zip
1,One,poetry,true,2001,1.5,2020-01-31,2020-01-31T10:00:00,007
2,Two,,FALSE,,2,2021-02-03,2020-01-31 11:00,12
9,Nine,drama,true,5,,2020-01-01,,1
8,,drama,,5,,2020-01-01,,1
"""
ONE = {
    "genre": "poetry",
    "in_stock": True,
    "year": 2001,
    "price": 1.5,
    "added": datetime.date(2020, 1, 31),
    "seen": datetime.datetime(2020, 1, 31, 10),
    "zip": "007",
}


@pytest.fixture
def log(source):
    return source("log.csv", "user,item\na,1\na,2\nb,1\nb,3\nc,1\n")


def test_cells_of_csv_have_the_narrowest_type_of_their_column(tmp_path, source, log):
    dataset = ingest(log, tmp_path / "ds", items=source("items.csv", ITEMS), items_id="item")
    attributes = dataset.attributes("items")
    kinds = ["text", "boolean", "number", "number", "date", "date", "text"]
    assert attributes.kinds == dict(zip(ONE, kinds, strict=True))
    assert [type(value) for value in attributes.of([0])[0].values()] == [
        type(value) for value in ONE.values()
    ]
    two = {"in_stock": False, "price": 2.0, "added": datetime.date(2021, 2, 3), "zip": "12"}
    two["seen"] = datetime.datetime(2020, 1, 31, 11)
    assert attributes.of([0, 1, 2]) == [ONE, two, {}]
    assert attributes.of([1, 0], ["in_stock"]) == [{"in_stock": False}, {"in_stock": True}]
    assert dataset.vocabulary("items").titles([0, 1, 2]) == ["One", "Two", "3"]
    facts = dataset.manifest.source
    assert (facts["items"], facts["items_with_attributes"], facts["items_with_title"]) == ("items.csv", 2, 2)
    assert facts["items_aside"] == 2


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("2020-01-31T10:00:00.5", "date"),
        ("2020-01-31 10:00Z", "date"),
        ("2020-01-31T10:00+05:00", "text"),
        ("2020-01-31 10:00 Europe/Berlin", "text"),
    ],
)
def test_a_time_with_an_offset_stays_the_text_that_it_is(tmp_path, source, log, cell, kind):
    items = source("items.csv", f"id,seen\n1,2020-01-31T10:00\n2,{cell}\n")
    attributes = ingest(log, tmp_path / "ds", items=items, items_id="id").attributes("items")
    assert attributes.kinds == {"seen": kind}
    assert kind == "date" or attributes.of([1]) == [{"seen": cell}]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "pandas", "polars", "arrow"])
def test_typed_sources_keep_their_types(tmp_path, log, kind):
    rows = {
        "id": ["1", "2"],
        "tags": [["a", "b"], []],
        "code": ["12", "13"],
        "new": [True, None],
        "size": [1.5, 3.0],
    }
    place = tmp_path / f"items.{kind}"
    if kind == "jsonl":
        lines = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
        place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif kind == "parquet":
        pl.DataFrame(rows).write_parquet(place)
    else:
        place = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind](rows)
    attributes = ingest(log, tmp_path / "ds", items=place, items_id="id").attributes("items")
    kinds = {"tags": "list", "code": "text", "new": "boolean", "size": "number"}
    assert attributes.kinds == kinds
    assert attributes.of([0, 1]) == [
        {"tags": ["a", "b"], "code": "12", "new": True, "size": 1.5},
        {"tags": [], "code": "13", "size": 3.0},
    ]


def test_the_bytes_do_not_depend_on_the_order_of_rows(tmp_path, source, log):
    first, *rows = ITEMS.splitlines(keepends=True)
    for name, lines in (("a", rows), ("b", rows[::-1])):
        items = source("items.csv", first + "".join(lines))
        ingest(log, tmp_path / name, items=items, items_id="item", name="same", threads=1 + (name == "b"))
    assert Dataset.open(tmp_path / "a").manifest.digest == Dataset.open(tmp_path / "b").manifest.digest
    for name in ("items.attributes.arrow", "items.aside.arrow"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_splits_have_the_attributes_and_verify_checks_them(tmp_path, source, log):
    whole = ingest(log, tmp_path / "ds", items=source("items.csv", ITEMS), items_id="item")
    part = split(whole, tmp_path / "split", heldout=0.5)
    assert part.attributes("items").of([0]) == [ONE]
    verify(part.path, part.manifest)
    for name in ("items.attributes.arrow", "items.aside.arrow"):
        assert part.manifest.files[name] == whole.manifest.files[name]
    damaged = tmp_path / "split" / "items.attributes.arrow"
    contents = bytearray(damaged.read_bytes())
    contents[len(contents) // 2] ^= 1
    damaged.write_bytes(contents)
    with mistake(DataError):
        Dataset.open(tmp_path / "split").attributes("items")


def test_grown_items_have_the_attributes_that_were_kept_aside(tmp_path, source, log):
    ingest(log, tmp_path / "before", items=source("items.csv", ITEMS), items_id="item")
    later = source("later.csv", "user,item\na,9\na,2\nb,9\nb,7\n")
    grown = ingest(later, tmp_path / "after", vocabulary=tmp_path / "before", grow=True)
    names = grown.vocabulary("items")
    assert names.titles(range(5)) == ["One", "Two", "3", "Nine", "7"]
    assert grown.attributes("items").of([0, 2, 3, 4], ["genre"]) == [
        {"genre": "poetry"},
        {},
        {"genre": "drama"},
        {},
    ]
    assert grown.manifest.source["items_aside"] == 1


def test_cells_may_hold_several_texts_and_decimal_commas(tmp_path, source, log):
    text = (
        "item;title;genres;cover;price\n"
        "1;One|Uno;Action|Comedy;a.png;1,50\n"
        "2;Two;Drama;b.png;-2\n"
        "3;Three;;;\n"
    )
    forms = {"items_separator": "|", "decimal": ","}
    log = source("log.csv", log.read_text().replace(",", ";"))
    dataset = ingest(log, tmp_path / "ds", items=source("items.csv", text), **forms)
    attributes = dataset.attributes("items")
    assert attributes.kinds == {"genres": "list", "cover": "text", "price": "number"}
    one = {"genres": ["Action", "Comedy"], "cover": "a.png", "price": 1.5}
    two = {"genres": ["Drama"], "cover": "b.png", "price": -2.0}
    assert attributes.of([0, 1, 2]) == [one, two, {}]
    assert dataset.vocabulary("items").titles([0]) == ["One|Uno"]
    commas = source("commas.csv", "item,price\n1,1.5\n2,-2\n3,\n")
    dataset = ingest(log, tmp_path / "commas", items=commas, titles=commas, title="price", decimal=",")
    assert dataset.attributes("items").of([0, 1]) == [{"price": 1.5}, {"price": -2.0}]


def test_lists_are_categories_and_conditions_too(tmp_path, log):
    items = pa.table({"item": [1, 2, 3], "tags": [["a", "b", "a"], None, ["b"]]})
    attributes = ingest(log, tmp_path / "ds", items=items).attributes("items")
    categories, number = attributes.categories("tags")
    assert (categories.tolist(), number) == ([[0, 1], [2, 2], [1, 2]], 3)
    assert attributes.matching({"tags": ["a"]}).tolist() == [True, False, False]
    assert attributes.matching({"tags": ["a", "b"]}).tolist() == [True, False, True]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1234567890123456789", "1234567890123456788"], [1234567890123456789, 1234567890123456788]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["1" * 60, "1"], ["1" * 60, "1"]),
        (["9007199254740993", "0.5"], ["9007199254740993", "0.5"]),
        (["9007199254740992", "0.5"], [9007199254740992.0, 0.5]),
        (["1e20", "0.5"], [1e20, 0.5]),
    ],
)
def test_whole_numbers_keep_all_their_digits(tmp_path, source, log, kind, cells, values):
    text = {
        "csv": "id,isbn\n" + "".join(f"{at},{cell}\n" for at, cell in enumerate(cells, start=1)),
        "jsonl": "".join(f'{{"id": {at}, "isbn": {cell}}}\n' for at, cell in enumerate(cells, start=1)),
    }[kind]
    found = (
        ingest(log, tmp_path / "ds", items=source(f"i.{kind}", text), items_id="id")
        .attributes("items")
        .of([0, 1])
    )
    assert [item["isbn"] for item in found] == values
    assert [type(item["isbn"]) for item in found] == [type(value) for value in values]
