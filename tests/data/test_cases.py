"""Small inputs that went wrong once: each is read as it should be, or refused with the right option."""

import pytest

from tests.data.test_read import pairs_of
from tests.mistakes import mistake
from widenet.data.ingest import ingest
from widenet.errors import DataError


@pytest.fixture
def cases(real_data):
    folder = real_data / "cases" / "files"
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}")
    return folder


@pytest.mark.parametrize(
    ("name", "options", "option"),
    [
        ("pieces_*.csv", {}, "columns"),
        ("pieces_1.csv", {"heldout": "pieces_2.csv"}, "columns"),
        ("stray_quotes.tsv", {"value": "plays"}, "quote"),
        ("impressions.tsv", {}, "columns"),
        ("blocks_by_item.txt", {}, "format"),
        ("blocks_by_item.txt", {"format": "sessions"}, "delimiter"),
        ("blocks_by_item.txt", {"format": "adjacency"}, "delimiter"),
    ],
)
def test_a_case_is_refused(tmp_path, cases, name, options, option):
    options = {key: cases / value if key == "heldout" else value for key, value in options.items()}
    with mistake(DataError, option=option):
        ingest(cases / name, tmp_path / "ds", **options)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("name", "options", "pairs"),
    [
        ("stray_quotes.tsv", {"value": "plays", "quote": ""}, {"u1": ["a"], "u2": ["b"], "u3": ["c"]}),
        ("reviews.csv", {}, {"u1": ["a"], "u2": ["b"], "u3": ["a"]}),
        ("lists.parquet", {"item": "item"}, {"a": ["x", "y"], "b": ["y"]}),
    ],
)
def test_a_case_is_read(tmp_path, cases, name, options, pairs):
    assert pairs_of(ingest(cases / name, tmp_path / "ds", **options)) == pairs


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_lists_of_a_frame_are_read(tmp_path, cases, library):
    frame = pytest.importorskip(library).read_parquet(cases / "lists.parquet")
    assert pairs_of(ingest(frame, tmp_path / "ds", item="item")) == {"a": ["x", "y"], "b": ["y"]}


def test_a_column_that_nobody_reads_stops_no_file(tmp_path, cases):
    dataset = ingest(cases / "few.csv", tmp_path / "ds", titles=cases / "titles_unneeded_column.json")
    assert sorted(dataset.vocabulary("items").titles([0, 1])) == ["T", "U"]


@pytest.mark.parametrize("options", [{"heldout_since": "2024-02-01"}, {"heldout_last": 1}])
def test_a_pair_that_is_held_out_stays_in_training_as_it_was_before(tmp_path, cases, options):
    dataset = ingest(cases / "repeated_pair.csv", tmp_path / "ds", time="t", **options)
    assert pairs_of(dataset)["u"] == ["A", "B"]
    row = dataset.ids(slice(None)).index("u")
    names = dataset.vocabulary("items")
    held = dataset.sparse("items", slice(row, row + 1), "heldout").indices.numpy()
    assert names.ids(held) == ["A"]
