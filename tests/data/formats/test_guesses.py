"""Guesses from the first lines: the real files are read as they are meant, and what is unsure is not
guessed.
"""

import os
from pathlib import Path

import pytest

from widenet.data.formats.guesses import begins_with_users, table_like
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
