"""`widenet data`: what it makes and what it says of it."""

import io
import json
import shutil

import pytest

from widenet.data import published as fetch
from widenet.data.dataset import Dataset


@pytest.mark.usefixtures("inside")
def test_ingest_tells_its_phases_and_what_it_made(widenet, tmp_path):
    ended = widenet("data", "ingest", "likes.csv", "--out", tmp_path / "whole", "--titles", "titles.csv")
    assert ended.status == 0
    assert (
        ended.err
        == "reading likes.csv as csv (commas, line 1 names the columns): user = user, item = item ...\n"
        "numbering users and items ...\n"
        "reading titles in titles.csv: title-id = item, title = title ...\nwriting ...\n"
    )
    assert ended.out.splitlines()[:2] == [f"{tmp_path / 'whole'}: 12 users", "  items: 9 distinct; 57 train"]
    made = Dataset.open(tmp_path / "whole")
    assert sorted(made.vocabulary("items").titles(range(9))) == [
        "The B",
        "The C",
        "The F",
        "The G",
        "The H",
        "The Hobbit",
        "The I",
        "The Red",
        "The Reed",
    ]


@pytest.mark.usefixtures("inside")
def test_split_makes_the_parts_asked_for(widenet, tmp_path):
    ended = widenet(
        "data",
        "split",
        "whole",
        "--out",
        tmp_path / "data",
        "--heldout",
        0.25,
        "--validation",
        0.25,
        "--seed",
        7,
    )
    parts = Dataset.open(tmp_path / "data").field("items").num_entries
    assert (ended.status, ended.err) == (0, "")
    assert (
        f"{parts['train']} train, {parts['validation']} validation, {parts['heldout']} heldout" in ended.out
    )
    assert sum(parts.values()) == 57
    assert min(parts.values()) >= 12


@pytest.mark.usefixtures("inside")
def test_users_set_aside_are_evaluated_from_what_they_are_known_to_have(widenet, tmp_path):
    options = ["--out", tmp_path / "others", "--heldout-users", 0.25, "--heldout", 0.25]
    ended = widenet("data", "split", "whole", *options, "--users-out", tmp_path / "held")
    assert ended.status == 0, ended.err
    assert [line for line in ended.out.splitlines() if "users" in line] == [
        f"{tmp_path / 'others'}: 9 users",
        f"{tmp_path / 'held'}: 3 users",
    ]
    ended = widenet("evaluate", "run", "--data", tmp_path / "held", "--k", 5)
    assert ended.status == 0, ended.err
    assert ended.out.endswith("over 3 users\n")


@pytest.mark.usefixtures("inside")
def test_describe_says_what_a_dataset_is_like(widenet):
    ended = widenet("data", "describe", "whole")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[:3] == [
        "whole: 12 users",
        "items: sparse, 9 distinct, 9 titles",
        "  train: 57 entries, density 52.778%",
    ]
    assert lines[3].split()[:5] == ["entries", "per", "mean", "min", "25%"]
    assert lines[4].split()[:9] == ["user", "4.8", "4", "4", "5", "5", "5", "6", "6"]
    described = json.loads(widenet("data", "describe", "whole", "--json").out)
    assert described["fields"]["items"]["parts"]["train"]["entries"] == 57


@pytest.mark.usefixtures("inside")
def test_verify_sees_a_changed_file(widenet, tmp_path):
    ended = widenet("data", "verify", "data")
    assert (ended.status, ended.out.splitlines()[-1]) == (0, "Every checksum and every rule holds.")
    assert "read:" not in ended.out
    shutil.copytree("data", tmp_path / "data")
    file = tmp_path / "data" / "examples-00000.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    ended = widenet("data", "verify", tmp_path / "data")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"widenet: {file}: ")


@pytest.mark.parametrize(
    "words", ["", "gowalla", "gowala --out out", "gowalla --min-value 3 --out out", "gowalla --out out"]
)
def test_fetch_reads_nothing_before_it_is_told_what_and_the_licence_is_accepted(
    words, widenet, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr(fetch, "fetch", None)
    ended = widenet("data", "fetch", *words.split())
    assert ended.status == 2
    assert ended.err.splitlines()[-1].startswith("widenet: ")
    assert ("Licence: None is stated" in ended.err) == (words == "gowalla --out out")


def test_fetch_makes_a_dataset_once_the_licence_is_accepted(widenet, monkeypatch, tmp_path):
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "gowalla").mkdir(parents=True)
    (tmp_path / "cache" / "gowalla" / "train.txt").write_text("0 1 2\n1 2\n")
    (tmp_path / "cache" / "gowalla" / "test.txt").write_text("1 1\n")
    ended = widenet("data", "fetch", "gowalla", "--out", tmp_path / "out", "--accept-licence")
    assert (ended.status, ended.out.splitlines()[:2]) == (
        0,
        [f"{tmp_path / 'out'}: 2 users", "  items: 2 distinct; 3 train, 1 heldout"],
    )
    assert "could not be checked" in ended.err
