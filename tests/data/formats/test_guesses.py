"""Guesses from the first lines: the real files are read as they are meant, and what is unsure is not
guessed.
"""

import os
import random
from pathlib import Path

import pytest

from widenet.data.formats.guesses import begins_with_users, holds_lists, table_like, time_like
from widenet.data.formats.text import TextFile

DATA = Path(os.environ.get("WIDENET_DATA", Path(__file__).parents[4] / "shared" / "data"))


def lines(text):
    return text.splitlines(keepends=True)


def windows(path, length=100, most=40):
    """Runs of lines from all over a file."""
    if not path.exists():
        pytest.skip(f"no real data at {path}; set WIDENET_DATA")
    every = path.read_text().splitlines()
    step = max(len(every) // most, 1)
    return [every[start : start + length] for start in range(0, len(every), step)]


@pytest.mark.parametrize("name", ["gowalla/train.txt", "gowalla/test.txt"])
def test_published_lists_of_users_need_no_option(name):
    assert all(map(begins_with_users, windows(DATA / name)))
    assert begins_with_users(TextFile(DATA / name).sample())
    assert not any(map(table_like, windows(DATA / name)))


def test_published_sessions_are_never_taken_as_users_with_items():
    for length in (2, 5, 20, 100):
        assert not any(
            map(begins_with_users, windows(DATA / "diginetica" / "train_sessions.plain.txt", length))
        )


@pytest.mark.parametrize(
    "text",
    [
        "u1 a b\n",
        "user-7 18 20 20\nuser-9 18\n",
        "0 0 1 2\n1 0 3\n2 1\n",
        "5 1 2\n5 3\n6 1\n8 2\n",
        "".join(f"{user * 13} {user % 7} {user % 5 + 20}\n" for user in range(20)),
        "".join(f"{name} x y{row % 9} z\n" for row, name in enumerate("abcdefghijklm")),
        "0 5 3\n1\n2 4\n",
    ],
)
def test_first_words_are_users(text):
    assert begins_with_users(lines(text))


@pytest.mark.parametrize(
    "text",
    [
        "1 2\n3 4 5\n6 7\n8 9\n",
        "".join(f"{3 * row + 1} {3 * row + 2} {3 * row + 3}\n" for row in range(30)),
        "0 5 5\n1 7\n",
        "to be or not\nbe\n",
        "to be\n",
        "1 2 3\n",
        "9 8\n3 4\n5 6\n",
        "apple pear\nplum kiwi\n",
        "".join(f"2024-05-0{row} s{row} p1 p{row % 3}\n" for row in range(1, 9)),
    ],
)
def test_first_words_may_be_items(text):
    assert not begins_with_users(lines(text))


def test_random_sessions_are_not_guessed():
    draw = random.Random(1)
    for num_items in (20, 500, 100_000):
        for _ in range(50):
            rows = [
                " ".join(str(draw.randrange(num_items)) for _ in range(draw.randrange(1, 9)))
                for _ in range(100)
            ]
            assert not begins_with_users(rows)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["978300760", "1511544070"], "seconds since 1970"),
        (["978300760.5"], "seconds since 1970"),
        (["1433221332117"], "milliseconds since 1970"),
        (["1433221332117000"], "microseconds since 1970"),
        (["20240501", "19991231"], "days"),
        (["2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01 10:00:00.123"], "dates"),
        (["31/12/2024", "1.2.2024 10:00"], "dates"),
        (["5/1/24", "12/31/24 10:00"], "dates"),
        (["978300760", "7"], None),
        (["20241399"], None),
        (["214536502"], None),
        (["7", "8"], None),
        (["2024-05"], None),
        ([""], None),
        ([], None),
    ],
)
def test_a_column_is_a_time_if_every_cell_is(cells, kind):
    assert time_like(cells) == kind


def test_cells_of_several_numbers_are_lists():
    assert holds_lists(["7 8", "9"])
    assert not holds_lists(["7", "9"])
    assert not holds_lists(["John Smith", "7 8"])


def test_lists_of_equal_lengths_are_no_table():
    assert table_like(lines("1 1500000001 1500000002\n2 1500000003 1500000001\n")) is None
    assert table_like(lines("1 2 3\n2 3 4\n")) is None
    assert table_like(lines("1  2 3\n2 3\n")) is None
    assert table_like(lines("1 7 2024-05-01\n2 8 2024-05-01\n")) == "column 3 looks like dates"
