"""`widenet data`: what it makes and what it says of it."""

import shutil

import pytest

from widenet.data.dataset import Dataset


@pytest.mark.usefixtures("inside")
def test_ingest_tells_its_phases_and_what_it_made(widenet, tmp_path):
    ended = widenet("data", "ingest", "likes.csv", "--out", tmp_path / "whole", "--titles", "titles.csv")
    assert ended.status == 0
    assert ended.err == (
        "reading likes.csv as csv (commas, line 1 names the columns): user = user, item = item ...\n"
        "numbering examples and features ...\nwriting ...\n"
    )
    assert ended.out.splitlines()[:2] == [f"{tmp_path / 'whole'}: 12 users", "  items: 9 features; 57 train"]
    made = Dataset.open(tmp_path / "whole")
    assert sorted(made.vocabulary("items").titles(range(9))) == [
        "The B",
        "The C",
        "The D",
        "The E",
        "The F",
        "The G",
        "The H",
        "The Hobbit",
        "The I",
    ]


def test_ingest_takes_columns_values_and_a_heldout_file(widenet, tmp_path):
    (tmp_path / "train.csv").write_text("who;what;stars\n1;7;5\n1;8;2\n2;7;4\n".replace(";", ","))
    (tmp_path / "test.csv").write_text("who,what,stars\n1,9,5\n")
    columns = ["--user", "who", "--item", "what", "--value", "stars"]
    ended = widenet(
        "data",
        "ingest",
        tmp_path / "train.csv",
        "--out",
        tmp_path / "data",
        *columns,
        "--heldout",
        tmp_path / "test.csv",
        "--field",
        "films",
    )
    assert ended.status == 0, ended.err
    made = Dataset.open(tmp_path / "data")
    assert made.field("films").has_values
    assert (made.field("films").num_entries, made.field("films").max_value) == ({"train": 3, "heldout": 1}, 5.0)


@pytest.mark.usefixtures("inside")
def test_split_makes_the_parts_asked_for(widenet, tmp_path):
    ended = widenet("data", "split", "whole", "--out", tmp_path / "data", "--heldout", 0.25, "--validation", 0.25, "--seed", 7)
    parts = Dataset.open(tmp_path / "data").field("items").num_entries
    assert (ended.status, ended.err) == (0, "")
    assert f"{parts['train']} train, {parts['validation']} validation, {parts['heldout']} heldout" in ended.out
    assert sum(parts.values()) == 57
    assert min(parts.values()) >= 12


@pytest.mark.usefixtures("inside")
def test_verify_sees_a_changed_file(widenet, tmp_path):
    assert widenet("data", "verify", "data").status == 0
    shutil.copytree("data", tmp_path / "data")
    file = tmp_path / "data" / "examples-00000.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    ended = widenet("data", "verify", tmp_path / "data")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"widenet: {file}: must have the SHA-256 of dataset.json; it changed.")
