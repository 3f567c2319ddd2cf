"""Ingest: equal to plain dictionaries, ordered, merged, and the same bytes every time."""

import random
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError


def rows_of(dataset, part="train"):
    """{user: {item: value}} as the dataset has it."""
    names = dataset.vocabulary("items")
    result = {}
    for row, user in enumerate(dataset.ids(slice(None))):
        batch = dataset.sparse("items", slice(row, row + 1), part)
        result[user] = dict(
            zip(names.ids(batch.indices.numpy()), batch.values_or_ones().tolist(), strict=True)
        )
    return result


@pytest.fixture
def ratings():
    draw = random.Random(5)
    return [
        (draw.randrange(-3, 40), f"i{draw.randrange(60)}", draw.randrange(1, 11) / 2, draw.randrange(1000))
        for _ in range(1500)
    ]


def text_of(ratings):
    return "user,item,rating,time\n" + "".join(",".join(str(cell) for cell in row) + "\n" for row in ratings)


def last_by_time(ratings):
    latest = {}
    for user, item, value, time in ratings:
        latest[str(user), item] = max(latest.get((str(user), item), (-1, -1)), (time, value))
    return {pair: value for pair, (_, value) in latest.items()}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_a_dataset_equals_plain_dictionaries(tmp_path, source, ratings, suffix):
    text = text_of(ratings)
    path = source(f"ratings.{suffix}", text if suffix == "csv" else text.replace(",", "\t"))
    if suffix == "parquet":
        columns = [pa.array(column) for column in zip(*ratings, strict=True)]
        pq.write_table(pa.table(columns, names=["user", "item", "rating", "time"]), path)
    manifest = ingest([path], tmp_path / "ds", value="rating", time="time").manifest
    expected = last_by_time(ratings)
    by_user = defaultdict(dict)
    for (user, item), value in expected.items():
        by_user[user][item] = value
    dataset = Dataset.open(tmp_path / "ds")
    assert rows_of(dataset) == by_user
    assert dataset.ids(slice(None)) == sorted(by_user, key=int)
    counts = Counter(item for _, item in expected)
    order = sorted(counts, key=lambda item: (-counts[item], item))
    assert dataset.vocabulary("items").ids(range(len(order))) == order
    assert (
        dataset.vocabulary("items").counts.tolist()
        == [counts[item] for item in order]
        == dataset.counts("items").tolist()
    )
    assert dataset.sparse("items", slice(None)).checked(len(order)).num_entries == len(expected)
    assert manifest.source["train_rows_read"] == 1500
    assert manifest.source["train_duplicates_merged"] == 1500 - len(expected)
    assert (manifest.fields["items"].min_value, manifest.fields["items"].max_value) == (
        min(expected.values()),
        max(expected.values()),
    )


def test_a_least_value_filters_after_merging_and_leaves_no_values(tmp_path, source, ratings):
    path = source("ratings.csv", text_of(ratings))
    kept = {pair: value for pair, value in last_by_time(ratings).items() if value >= 4}
    manifest = ingest([path], tmp_path / "binary", min_value=4, time="time").manifest
    rows = rows_of(Dataset.open(tmp_path / "binary"))
    assert {(user, item) for user, row in rows.items() for item in row} == set(kept)
    assert not manifest.fields["items"].has_values
    assert manifest.source["train_below_min_value"] == len(last_by_time(ratings)) - len(kept)
    ingest([path], tmp_path / "valued", min_value=4, time="time", keep_values=True)
    rows = rows_of(Dataset.open(tmp_path / "valued"))
    assert {(user, item): value for user, row in rows.items() for item, value in row.items()} == kept


def test_numbers_sort_by_value_and_text_by_bytes(tmp_path, source):
    ingest([source("n.csv", "user,item\n10,10\n9,9\n-1,2\n07,2\n7,07\n")], tmp_path / "numbers")
    numbers = Dataset.open(tmp_path / "numbers")
    assert numbers.ids(slice(None)) == ["-1", "07", "7", "9", "10"]
    assert numbers.vocabulary("items").ids(range(4)) == ["2", "07", "9", "10"]
    ingest([source("t.csv", "user,item\n10,b\n9,a\nZ,Z\na,é\nA,b\n")], tmp_path / "text")
    text = Dataset.open(tmp_path / "text")
    assert text.ids(slice(None)) == ["10", "9", "A", "Z", "a"]
    assert text.vocabulary("items").ids(range(4)) == ["b", "Z", "a", "é"]


def test_adjacency_lines_add_up_and_a_user_without_items_has_an_empty_row(tmp_path, source):
    path = source("train.adj", "0 5 3\n2\n1 4\n0  3 9 \r\n\n")
    manifest = ingest([path], tmp_path / "ds").manifest
    assert rows_of(Dataset.open(tmp_path / "ds")) == {
        "0": {"5": 1.0, "3": 1.0, "9": 1.0},
        "1": {"4": 1.0},
        "2": {},
    }
    assert manifest.source["train_duplicates_merged"] == 1


def test_heldout_adds_users_and_items_and_its_pairs_of_train_are_counted(tmp_path, source):
    train = source("train.adj", "0 5 3\n1 3\n")
    test = source("test.adj", "0 3 8\n7 5\n")
    manifest = ingest([train], tmp_path / "ds", heldout=test).manifest
    dataset = Dataset.open(tmp_path / "ds")
    assert rows_of(dataset) == {"0": {"5": 1.0, "3": 1.0}, "1": {"3": 1.0}, "7": {}}
    assert rows_of(dataset, "heldout") == {"0": {"3": 1.0, "8": 1.0}, "1": {}, "7": {"5": 1.0}}
    assert dataset.vocabulary("items").ids(range(3)) == ["3", "5", "8"]
    assert dataset.vocabulary("items").counts.tolist() == [2, 1, 0]
    assert manifest.source["heldout_already_in_train"] == 1


def test_several_sources_are_one_and_ids_keep_their_text(tmp_path, source):
    first = source("a.csv", 'user_id,bookId\n"Smith, ""J""",é x\n')
    second = source("b.csv", "bookId;user_id\r\ny;Smith, J\r\n")
    ingest([first, second], tmp_path / "ds")
    assert rows_of(Dataset.open(tmp_path / "ds")) == {'Smith, "J"': {"é x": 1.0}, "Smith, J": {"y": 1.0}}


@pytest.mark.parametrize("threads", [1, 3])
def test_two_ingests_give_identical_bytes_for_any_number_of_threads(tmp_path, source, ratings, threads):
    path = source("ratings.csv", text_of(ratings * 3))
    shuffled = source("ratings2.csv", text_of(random.Random(1).sample(ratings, len(ratings)) + ratings * 2))
    ingest([path], tmp_path / "one", value="rating", time="time", threads=2, name="x")
    ingest(
        [shuffled], tmp_path / "two", value="rating", time="time", threads=threads, memory="500MB", name="x"
    )
    files = [path.name for path in sorted((tmp_path / "one").iterdir()) if path.suffix == ".arrow"]
    assert files == ["examples-00000.arrow", "items.vocabulary.arrow"]
    assert [(tmp_path / "one" / name).read_bytes() for name in files] == [
        (tmp_path / "two" / name).read_bytes() for name in files
    ]
    ingest([path], tmp_path / "three", value="rating", time="time", threads=threads, name="x")
    assert (tmp_path / "three" / "dataset.json").read_bytes() == (
        tmp_path / "one" / "dataset.json"
    ).read_bytes()


@pytest.mark.parametrize("names", ["", "u"])
def test_progress_counts_rows_and_examples(tmp_path, source, names):
    told = []
    path = source("a.csv", f"user,item\n{names}1,2\n{names}1,3\n{names}2,3\n")
    ingest([path], tmp_path / "ds", on_rows=lambda done, total: told.append((done, total)))
    assert told == [(3, None), (3, 3), (2, 2)]


def test_a_refused_source_leaves_nothing_behind(tmp_path, source):
    path = source("r.csv", "user,item,rating\na,x,five\n")
    with pytest.raises(DataError):
        ingest([path], tmp_path / "out" / "ds", value="rating")
    assert list((tmp_path / "out").iterdir()) == []


def test_gowalla_has_its_published_counts_and_rows(tmp_path, real_data):
    folder = real_data / "gowalla"
    files = [folder / "train.txt"], tmp_path / "ds"
    manifest = ingest(*files, heldout=folder / "test.txt", format="adjacency").manifest
    assert (manifest.num_examples, manifest.fields["items"].width) == (29_858, 40_981)
    assert manifest.fields["items"].num_entries == {"train": 810_128, "heldout": 217_242}
    dataset = Dataset.open(tmp_path / "ds")
    names = np.array(dataset.vocabulary("items").ids(range(40_981)))
    for part, name in (("train", "train.txt"), ("heldout", "test.txt")):
        batch = dataset.sparse("items", slice(None), part).checked(40_981)
        pieces = np.split(names[batch.indices.numpy()], batch.indptr[1:-1].numpy())
        actual = {user: set(items) for user, items in zip(dataset.ids(slice(None)), pieces, strict=True)}
        assert actual == {
            words[0]: set(words[1:]) for words in map(str.split, (folder / name).read_text().splitlines())
        }
