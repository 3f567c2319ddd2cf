"""Kept times: a split by time equals the ingest that sets the same aside, and durations count back from
the newest interaction.
"""

import json
import random
from contextlib import nullcontext
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.mistakes import mistake
from widenet.data import split as splitting
from widenet.data import tables
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.manifest import Manifest
from widenet.data.split import split
from widenet.errors import OptionError

DAY = 86_400
NEWEST = datetime(2024, 5, 31, tzinfo=UTC).timestamp()


@pytest.fixture(params=["", "u"])
def prefix(request):
    """What the ids of users begin with: those that are numbers are stored otherwise."""
    return request.param


@pytest.fixture
def log(prefix, source):
    """A file of different pairs with different times of 30 days, in seconds."""
    draw = random.Random(4)
    times = iter(draw.sample(range(30 * DAY), 300))
    pairs = draw.sample([(user, item) for user in range(12) for item in range(30)], 300)
    rows = [
        (f"{prefix}{user}", item, draw.randrange(1, 6), int(NEWEST) - next(times)) for user, item in pairs
    ]
    return source(
        "log.csv",
        "user,item,rating,at\n"
        + "".join(f"{user},{item},{value},{time}\n" for user, item, value, time in rows)
        + f"x,1,1,{int(NEWEST)}\nx,2,1,5\n",
    )


def rows_of(path):
    """{part: {user: [(item, value)]}} of a dataset."""
    dataset = Dataset.open(path)
    verify(path, Manifest.read(path))
    names = dataset.vocabulary("items").all_ids().to_pylist()
    found = {}
    for part in dataset.fields["items"].parts:
        for row, user in enumerate(dataset.ids(slice(None))):
            batch = dataset.sparse("items", slice(row, row + 1), part)
            entries = [
                (names[index], value)
                for index, value in zip(batch.indices.tolist(), batch.values_or_ones().tolist(), strict=True)
            ]
            found.setdefault(part, {})[user] = (
                entries if dataset.fields["items"].kind == "sequence" else sorted(entries)
            )
    return found


OPTIONS = [
    {"heldout_last": 1},
    {"heldout_last": 3, "validation_last": 2},
    {"heldout_since": "7d"},
    {"heldout_since": "1 week", "validation_since": "2024-05-14"},
    {"heldout_since": NEWEST - 2 * DAY, "validation_last": 1},
    {"validation_since": "36 hours"},
]


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_a_split_by_time_equals_the_ingest_that_sets_the_same_aside(
    tmp_path, log, prefix, monkeypatch, number
):
    """Each option meets sequences and sets, and both kinds of ids."""
    options, sequence = OPTIONS[number], number % 2 == len(prefix)
    monkeypatch.setattr(tables, "ROWS_PER_BUCKET", 50)
    monkeypatch.setattr(splitting, "_ROWS_AT_ONCE", 3)
    common = {"time": "at", "sequence": sequence, **({} if sequence else {"value": "rating"})}
    ingest(log, tmp_path / "kept", keep_times=True, **common)
    split(tmp_path / "kept", tmp_path / "split", **options)
    ingest(log, tmp_path / "direct", **common, **options)
    assert rows_of(tmp_path / "split") == rows_of(tmp_path / "direct")


@pytest.mark.parametrize(
    "further", [{}, {"min_user_items": 2, "min_item_users": 2}, {"min_value": 2}, {"heldout_last": 1}]
)
def test_times_stand_beside_their_items(tmp_path, log, further):
    dataset = ingest(log, tmp_path / "ds", time="at", value="rating", keep_times=True, **further)
    names = dataset.vocabulary("items").all_ids().to_pylist()
    expected = {}
    for line in log.read_text().splitlines()[1:]:
        user, item, value, time = line.split(",")
        expected[user, item] = max(expected.get((user, item), (0.0, 0.0)), (float(time), float(value)))
    table = pa.Table.from_batches(list(dataset.record_batches()))
    for part in dataset.fields["items"].parts:
        column = "items" if part == "train" else f"items.{part}"
        for user, items, times in zip(
            *(table.column(name).to_pylist() for name in ("id", column, f"{column}.time")), strict=True
        ):
            assert [expected[user, names[item]][0] for item in items] == times
    assert dataset.manifest.fields["items"].has_times


def test_durations_of_an_ingest_count_from_the_newest_interaction(tmp_path, log):
    for name, options in (
        ("relative", {"since": "10d", "until": "2 days"}),
        ("dates", {"since": NEWEST - 10 * DAY, "until": NEWEST - 2 * DAY}),
    ):
        ingest(log, tmp_path / name, time="at", **options)
    assert rows_of(tmp_path / "relative") == rows_of(tmp_path / "dates")


def test_a_time_without_items_is_not_the_newest(tmp_path, source):
    rows = [("u", ["a"], NEWEST - 2 * DAY), ("u", ["b"], NEWEST), ("v", [], NEWEST + 9 * DAY)]
    lines = "".join(json.dumps({"user": user, "item": items, "at": at}) + "\n" for user, items, at in rows)
    ingest(source("a.jsonl", lines), tmp_path / "ds", time="at", heldout_since="1 day")
    assert [name for name, _ in rows_of(tmp_path / "ds")["heldout"]["u"]] == ["b"]


@pytest.mark.parametrize(("until", "is_right"), [(NEWEST - 2 * DAY, False), (NEWEST - 2 * DAY + 1, True)])
def test_a_duration_must_begin_before_a_date_that_ends(tmp_path, source, until, is_right):
    path = source("a.csv", f"user,item,at\nu,a,{NEWEST}\nu,b,{NEWEST - 2 * DAY}\n")
    with nullcontext() if is_right else mistake(OptionError, option="since"):
        ingest(path, tmp_path / "ds", time="at", since="2 days", until=until)
