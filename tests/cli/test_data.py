"""`widenet data`: what it makes and what it says of it."""

import io

import pytest

from widenet.data import published as fetch


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
    assert lines[4].split()[:9] == ["user", "4.8", "4", "4", "5", "5", "5", "6", "6"]


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
