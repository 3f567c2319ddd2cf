"""Which interactions an ingest keeps and sets aside: equal to plain dictionaries, and every wrong option
in a sentence.
"""

import random
from collections import defaultdict

import pytest

from tests.data.test_ingest import rows_of as dataset_rows
from tests.mistakes import mistake
from widenet.data import tables
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError

HEAD = "user,item,value,time\n"


def rows_of(folder, part="train"):
    """{user: {item: value}} without users that have none."""
    return {user: row for user, row in dataset_rows(Dataset.open(folder), part).items() if row}


@pytest.fixture
def log(source):
    draw = random.Random(8)
    times = iter(draw.sample(range(500), 400))
    rows = [
        (
            f"u{int(draw.random() ** 2 * 30)}",
            f"i{int(draw.random() ** 2 * 40)}",
            draw.randrange(1, 6),
            next(times),
        )
        for _ in range(400)
    ]
    return source("log.csv", HEAD + "".join("{},{},{},{}\n".format(*row) for row in rows)), rows


def last_of(rows):
    latest = {}
    for user, item, value, time in rows:
        latest[user, item] = max(latest.get((user, item), (-1, -1)), (time, value))
    by_user = defaultdict(dict)
    for (user, item), found in latest.items():
        by_user[user][item] = found
    return by_user


def values_of(by_user):
    return {
        user: {item: float(value) for item, (_, value) in row.items()} for user, row in by_user.items() if row
    }


def set_aside(rows, number):
    """The rows from the earliest of each user's last items on, one of whose items stays, and the others."""
    newest = defaultdict(dict)
    for user, item, _, time in rows:
        newest[user][item] = max(newest[user].get(item, 0), time)
    first = {user: sorted(times.values())[max(1, len(times) - number) :] for user, times in newest.items()}
    late = [row for row in rows if first[row[0]] and row[3] >= first[row[0]][0]]
    return late, [row for row in rows if row not in late]


@pytest.mark.parametrize("rows_per_bucket", [7, 2**19])
def test_times_and_minimums_are_those_of_dictionaries(tmp_path, log, monkeypatch, rows_per_bucket):
    monkeypatch.setattr(tables, "ROWS_PER_BUCKET", rows_per_bucket)
    path, rows = log
    manifest = ingest(
        path,
        tmp_path / "ds",
        value="value",
        time="time",
        since=50,
        until=450,
        min_user_items=4,
        min_item_users=3,
    ).manifest
    inside = [row for row in rows if 50 <= row[3] < 450]
    left = last_of(inside)
    num_users, num_items = len(left), len({item for row in left.values() for item in row})
    while True:
        counts = defaultdict(int)
        for row in left.values():
            for item in row:
                counts[item] += 1
        smaller = {
            user: {item: found for item, found in row.items() if counts[item] >= 3}
            for user, row in left.items()
            if len(row) >= 4
        }
        if smaller == left:
            break
        left = smaller
    assert rows_of(tmp_path / "ds") == values_of(left)
    assert Dataset.open(tmp_path / "ds").ids(slice(None)) == sorted(left)
    facts = manifest.source
    assert facts["train_outside_since_and_until"] == 400 - len(inside)
    assert facts["users_below_min_user_items"] == num_users - len(left) > 0
    assert (
        facts["items_below_min_item_users"]
        == num_items - len({item for row in left.values() for item in row})
        > 0
    )
    num_left = sum(len(row) for row in left.values())
    assert (
        facts["train_interactions_below_minimums"]
        == sum(len(row) for row in last_of(inside).values()) - num_left
        > 0
    )


@pytest.mark.parametrize("rows_per_bucket", [7, 2**19])
def test_the_last_items_are_set_aside_and_one_stays(tmp_path, log, monkeypatch, rows_per_bucket):
    monkeypatch.setattr(tables, "ROWS_PER_BUCKET", rows_per_bucket)
    path, rows = log
    ingest(path, tmp_path / "ds", value="value", time="time", heldout_last=2, validation_last=1)
    parts = {part: rows_of(tmp_path / "ds", part) for part in ("train", "validation", "heldout")}
    held, rest = set_aside(rows, 2)
    validation, train = set_aside(rest, 1)
    for part, expected in (("heldout", held), ("validation", validation), ("train", train)):
        assert parts[part] == values_of(last_of(expected))
    assert Dataset.open(tmp_path / "ds").vocabulary("items").counts.sum() == sum(
        map(len, parts["train"].values())
    )


REPEATED = "u,A,1,1\nu,B,1,2\nu,A,1,5\nu,A,4,5\nu,C,1,3\nv,B,1,1\nv,A,1,6\nw,C,1,9\nw,C,1,8\n"


@pytest.mark.parametrize(
    ("options", "train", "validation", "heldout"),
    [
        ({"heldout_since": 4}, {"u": "ABC", "v": "B"}, {}, {"u": "A", "v": "A", "w": "C"}),
        (
            {"heldout_since": 4, "validation_since": 2},
            {"u": "A", "v": "B"},
            {"u": "BC"},
            {"u": "A", "v": "A", "w": "C"},
        ),
        ({"heldout_last": 1}, {"u": "ABC", "v": "B", "w": "C"}, {}, {"u": "A", "v": "A"}),
        ({"heldout_last": 2}, {"u": "AB", "v": "B", "w": "C"}, {}, {"u": "AC", "v": "A"}),
        (
            {"heldout_last": 1, "validation_last": 1},
            {"u": "AB", "v": "B", "w": "C"},
            {"u": "C"},
            {"u": "A", "v": "A"},
        ),
        ({"heldout_since": 4, "min_value": 2}, None, {}, None),
        ({"heldout_since": 4, "min_user_items": 2}, {"u": "ABC", "v": "B"}, {}, {"u": "A", "v": "A"}),
    ],
)
def test_a_pair_on_both_sides_of_a_time_is_in_both_parts_and_counted(
    tmp_path, source, options, train, validation, heldout
):
    path = source("r.csv", HEAD + REPEATED)
    if train is None:
        with mistake(DataError, place=path, option="min_value"):
            ingest(path, tmp_path / "ds", time="time", **options)
        return
    facts = ingest(path, tmp_path / "ds", time="time", **options).manifest.source
    dataset = Dataset.open(tmp_path / "ds")
    for part, expected in (("train", train), ("validation", validation), ("heldout", heldout)):
        found = rows_of(tmp_path / "ds", part) if part in dataset.fields["items"].parts else {}
        assert {user: "".join(sorted(row)) for user, row in found.items()} == expected
        if part != "train":
            both = [set(items) & set(train.get(user, "")) for user, items in expected.items()]
            assert facts.get(f"{part}_already_in_train", 0) == sum(map(len, both))


def test_the_value_of_a_pair_in_two_parts_is_that_of_its_rows_in_each(tmp_path, source):
    path = source("r.csv", HEAD + REPEATED)
    for duplicates, value in (("last", 4.0), ("sum", 5.0)):
        out = tmp_path / duplicates
        ingest(path, out, time="time", value="value", duplicates=duplicates, heldout_since=4)
        assert (rows_of(out)["u"]["A"], rows_of(out, "heldout")["u"]["A"]) == (1.0, value)


def test_times_from_a_date_on_are_set_aside(tmp_path, source):
    rows = (
        "a,x,1,2024-05-01\na,y,1,2024-05-02T12:00\nb,y,1,2024-05-03\n"
        "b,x,1,2024-04-01\na,z,1,2024-05-03T00:00:01\n"
    )
    ingest(
        source("r.csv", HEAD + rows),
        tmp_path / "ds",
        time="time",
        heldout_since="2024-05-03",
        validation_since="2024-05-02T02:00+02:00",
    )
    assert rows_of(tmp_path / "ds") == {"a": {"x": 1.0}, "b": {"x": 1.0}}
    assert rows_of(tmp_path / "ds", "validation") == {"a": {"y": 1.0}}
    assert rows_of(tmp_path / "ds", "heldout") == {"a": {"z": 1.0}, "b": {"y": 1.0}}
    assert list(Dataset.open(tmp_path / "ds").field("items").num_entries) == [
        "train",
        "validation",
        "heldout",
    ]


def test_rows_are_counted_where_the_sum_of_no_values_is_asked_for(tmp_path, source):
    path = source("r.csv", "user,item\na,x\na,x\nb,x\na,y\na,x\n")
    ingest(path, tmp_path / "sum", duplicates="sum")
    assert rows_of(tmp_path / "sum") == {"a": {"x": 3.0, "y": 1.0}, "b": {"x": 1.0}}
    ingest(path, tmp_path / "twice", duplicates="sum", min_value=2)
    assert rows_of(tmp_path / "twice") == {"a": {"x": 1.0}}


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"since": 1000, "time": "time"}, "since"),
        ({"until": "1970-01-01", "min_item_users": 2, "time": "time"}, "until"),
        ({"min_user_items": 1000}, "min_user_items"),
        ({"heldout_since": 0, "time": "time"}, None),
    ],
)
def test_where_nothing_is_left_the_option_is_named(tmp_path, log, options, option):
    with mistake(DataError, place=log[0], option=option):
        ingest(log[0], tmp_path / "ds", **options)


@pytest.mark.parametrize("part", ["heldout", "validation"])
def test_a_time_that_sets_nothing_aside_is_refused(tmp_path, log, part):
    times = [time for *_, time in log[1]]
    with mistake(DataError, place=log[0], option=f"{part}_since"):
        ingest(log[0], tmp_path / "ds", time="time", **{f"{part}_since": max(times) + 1})
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("option", ["since", "until", "heldout_since", "validation_since"])
def test_a_date_beside_milliseconds_is_refused(tmp_path, source, option):
    path = source("r.csv", HEAD + "a,x,1,1700000000000\na,y,1,1600000000000\n")
    with mistake(DataError, column="time", option=option):
        ingest(path, tmp_path / "ds", time="time", **{option: "2021-01-01"})
    assert ingest(path, tmp_path / "ds", time="time", until=1650000000000).fields["items"].num_entries == {
        "train": 1
    }
