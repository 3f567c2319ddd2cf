"""Filters: files of what is not recommended, and every mistake in one named exactly."""

from itertools import pairwise

import pytest
import torch

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError
from widenet.predict.restrictions import PerUser, read_ids, read_weights


@pytest.fixture
def names(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0]], item_ids=["a", "b,c", "d", 'say "e"']).vocabulary(
        "items"
    )


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "filter.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def rows(batch):
    indptr = batch.indptr.tolist()
    return [batch.indices[start:stop].tolist() for start, stop in pairwise(indptr)]


def test_banned_items_are_one_id_a_line(names, file):
    path = file('a\n\nb,c\r\nsay "e"\na')
    assert read_ids("never", path, names, 6, []).tolist() == [True, True, False, True, False, False]
    assert read_ids("never", file(""), names, 4, []).tolist() == [False] * 4


def test_weights_are_factors_of_the_items_named_and_one_elsewhere(names, file):
    weights = read_weights(file('weight,note,item\n0.5,x,d\n2,y,"b,c"\n0,z,a\n'), names, 5, [])
    assert weights.tolist() == [0.0, 2.0, 0.5, 1.0, 1.0]
    assert weights.dtype == torch.float32


def test_items_of_single_users_come_row_by_row(names, file):
    barred = PerUser(file('user,item\nbob,d\nann,a\nbob,a\nbob,d\n"x,y","b,c"\n'), names, [])
    assert rows(barred.of(["ann", "none", "bob", "x,y"])) == [[0], [], [0, 2], [1]]
    assert rows(barred.of([])) == []


def test_lists_and_dictionaries_say_the_same_as_files(names, file):
    assert read_ids("never", ["a", "d"], names, 5, []).equal(read_ids("never", file("a\nd\n"), names, 5, []))
    factors = read_weights({"d": 0.5, "b,c": 2, "a": 0}, names, 5, [])
    assert factors.tolist() == [0.0, 2.0, 0.5, 1.0, 1.0]
    barred = PerUser({"bob": ["d", "a", "d"], 7: ("b,c",)}, names, [])
    assert rows(barred.of(["7", "bob", "ann"])) == [[1], [0, 2], []]
    unasked = PerUser({"bob": ["d"], "eve": ["a"]}, names, [])
    unasked.of(["bob"])
    assert "never_for" in unasked.warning()


def test_only_some_items_are_allowed(names, file):
    assert read_ids("only", ["d", "a"], names, 5, []).tolist() == [True, False, True, False, False]
    assert read_ids("only", file("b,c\n"), names, 4, []).tolist() == [False, True, False, False]
    with mistake(DataError, place="only"):
        read_ids("only", [], names, 4, [])


FILTERS = {
    "never": lambda items, names, notes: read_ids("never", items, names, 4, notes),
    "only": lambda items, names, notes: read_ids("only", items, names, 4, notes),
    "weights": lambda items, names, notes: read_weights(dict.fromkeys(items, 1), names, 4, notes),
    "never_for": lambda items, names, notes: PerUser({"bob": items}, names, notes),
    "only_for": lambda items, names, notes: PerUser({"bob": items}, names, notes, "only_for"),
}


@pytest.mark.parametrize("option", FILTERS)
def test_unknown_ids_are_a_note_unless_there_are_no_others(option, names):
    notes = []
    FILTERS[option](["v", "a", "w", "d", "x", "y"], names, notes)
    FILTERS[option](["a", "new"], names, notes)
    assert all(note.startswith(option) for note in notes)
    assert ["4 of 6" in notes[0], "'x'" in notes[0], "1 of 2" in notes[1], "'new'" in notes[1]] == [True] * 4
    with mistake(DataError, place=option):
        FILTERS[option](["zz", "yy"], names, notes)


def test_unknown_ids_of_a_file_leave_the_others_their_places(names, file):
    notes = []
    assert read_ids("never", file("a\nzz\nd\n"), names, 4, notes).tolist() == [True, False, True, False]
    weights = read_weights(file("item,weight\nzz,2\nd,3\nzz,4\na,5\n"), names, 4, notes)
    assert weights.tolist() == [5.0, 1.0, 3.0, 1.0]
    lists = PerUser(file("user,item\nann,zz\nbob,zz\nbob,d\n"), names, notes, "only_for")
    assert rows(lists.of(["ann", "bob"])) == [[], [2]]
    assert lists.only(["ann", "eve"]).listed_E.tolist() == [True, False]
    assert ["1 of 3" in notes[0], "1 of 3" in notes[1], "1 of 2" in notes[2]] == [True] * 3


@pytest.mark.parametrize("weight", [-1, 1e39, "0.5", None, True])
def test_a_weight_that_is_no_factor_is_refused(weight, names):
    with mistake(DataError, option="weights"):
        read_weights({"a": weight}, names, 4, [])


READERS = {
    "never": lambda path, names: read_ids("never", path, names, 4, []),
    "never_for": lambda path, names: PerUser(path, names, []),
    "weights": lambda path, names: read_weights(path, names, 4, []),
}

MISTAKES = [
    ("never_for", "usr,item\nann,a\n", None, "user"),
    ("never_for", "", None, "user"),
    ("weights", "item,wait\na,1\n", None, "weight"),
    ("weights", "item;weight\na;0,5\n", None, "item"),
    ("weights", "item,weight\na,1\nd,2\na,3\n", 4, None),
    ("weights", "item,weight\na,1\nd\n", 3, None),
    ("weights", "item,weight\na,1\nd,0,5\n", 3, None),
    ("weights", "item,weight\na,1\nd,heavy\n", 3, "weight"),
    ("weights", "item,weight\na,nan\n", 2, "weight"),
    ("weights", "item,weight\na,1e999\n", 2, "weight"),
    ("weights", "item,weight\na,1e39\n", 2, "weight"),
    ("weights", "item,weight\na,-0.5\n", 2, "weight"),
    ("weights", "item,weight\na,-inf\n", 2, "weight"),
    ("weights", "item,item,weight\na,1\n", 2, None),
    ("never", b"\xff\xfe\n", None, None),
]


@pytest.mark.parametrize(("kind", "text", "line", "column"), MISTAKES)
def test_a_mistake_is_named_with_file_line_and_column(kind, text, line, column, names, file):
    with mistake(DataError, place="filter.csv", line=line, column=column):
        READERS[kind](file(text), names)


def test_a_byte_order_mark_of_a_spreadsheet_is_not_part_of_a_name(names, file):
    assert read_weights(file("\ufeffitem,weight\na,3\n"), names, 4, [])[0] == 3.0
    assert read_ids("never", file("\ufeffa\n"), names, 4, [])[0]
