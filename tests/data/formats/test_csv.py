"""Numbers with decimal commas, in CSV: read where that is said, and refused with the remedy where it is
not.
"""

import pytest

from widenet.data.dataset import Dataset
from widenet.data.formats.csv import guessed_delimiter
from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError

RATINGS = "{}u1;a;3,5;10,5\nu1;a;1,25;10,25\nu2;b;-2;7\nu2;a;,5;1e1\n"
USERS = "id;age;counts\nu1;0,25;1,5\nu2;-3;2\n"
OPTIONS = {"dense": {"profile": ["age"]}, "weight": "counts"}


def digest(folder, header, decimal):
    """The digest of the dataset of these ratings and users, written with one decimal sign or the other."""
    folder.mkdir()
    for name, text in (("ratings.csv", RATINGS.format(header)), ("users.csv", USERS)):
        (folder / name).write_text(text if decimal == "," else text.replace(",", "."))
    columns = (
        {"user": "user", "item": "item", "value": "rating", "time": "at"}
        if header
        else {"value": "3", "time": "4"}
    )
    said = {"decimal": decimal, "users_decimal": decimal}
    ingest(folder / "ratings.csv", folder / "data", users=folder / "users.csv", **columns, **OPTIONS, **said)
    return Dataset.open(folder / "data").digest


@pytest.mark.parametrize("header", ["user;item;rating;at\n", ""], ids=["named", "unnamed"])
def test_numbers_times_and_users_with_decimal_commas_are_those_with_points(header, tmp_path):
    assert digest(tmp_path / "commas", header, ",") == digest(tmp_path / "points", header, None)


def test_the_delimiter_is_rather_another_sign_than_that_of_decimals():
    assert guessed_delimiter(["u1;0,5;1,5\n"], ",") == ";"
    assert guessed_delimiter(['u1,"0,5"\n'], ",") == ","


def test_a_users_number_with_the_other_sign_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "likes.csv").write_text("user,item\nu1,a\n")
    said = "column \"age\" must be a number; user 'u1' has {}. Write {}, or {}."
    for cell, decimal, remedy in (
        ("0,5", None, ("0.5", "use `users_decimal=','` for CSV with decimal commas")),
        ("0.5", ",", ("0,5", "leave `users_decimal` out")),
    ):
        (tmp_path / "users.csv").write_text(f"id;age\nu1;{cell}\n")
        with pytest.raises(DataError) as refused:
            ingest(
                tmp_path / "likes.csv",
                tmp_path / "data",
                users=tmp_path / "users.csv",
                dense={"p": ["age"]},
                users_decimal=decimal,
            )
        assert str(refused.value).endswith(said.format(cell, *remedy))


@pytest.mark.parametrize("option", ["decimal", "users_decimal"])
def test_another_sign_is_refused(option, tmp_path):
    with pytest.raises(OptionError, match=f"^`{option}` must be a point or a comma; got ';'."):
        ingest(tmp_path / "a.csv", tmp_path / "data", users=tmp_path / "users.csv", **{option: ";"})
