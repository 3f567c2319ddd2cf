"""`widenet neighbourhood` and `quantize` make runs that every other command reads."""

import json

import pytest


@pytest.mark.usefixtures("inside")
def test_it_prints_what_it_tries_and_what_it_keeps(widenet, tmp_path):
    out = tmp_path / "near"
    ended = widenet("neighbourhood", "run", "--out", out, "--metric", "ndcg@2")
    assert ended.status == 0
    best, kept, fingerprint = ended.out.splitlines()
    first, *tried = ended.err.splitlines()
    assert first.endswith("  no term")
    assert first.startswith("ndcg@2 0.")
    assert "weight 0.8, floor 0.01, 25 neighbours, popularity 0.4" in tried[0]
    assert best.startswith("Best: ")
    assert ". For 6 other users ndcg@2 0." in best
    assert kept.startswith(f"{out}: ")
    lines = [line.split("  ")[1] for line in [first, *tried]]
    assert len(set(lines)) == len(lines)
    again = widenet("fingerprint", out)
    assert again.out.strip() == fingerprint.split()[1]
    assert widenet("recommend", out, "--items", "The Hobbit").status == 0
    assert widenet("evaluate", out, "--data", "data").status == 0
    assert widenet("compare", "run", out, "--data", "data").status == 0
    assert widenet("report", "run", out, "--out", tmp_path / "both.html").status == 0
    assert json.loads(widenet("runs", tmp_path, "--json").out)["runs"][0]["made_of"].endswith("run")


@pytest.mark.usefixtures("inside")
def test_it_prints_the_bytes_and_the_fingerprint(widenet, tmp_path):
    out = tmp_path / "small"
    ended = widenet("quantize", "run", "--out", out)
    assert ended.status == 0
    size, fingerprint = ended.out.splitlines()
    assert size.startswith(f"{out}: ")
    assert widenet("fingerprint", out).out.strip() == fingerprint.split()[1]
    assert widenet("recommend", out, "--items", "The Hobbit").status == 0
    assert widenet("evaluate", out, "--data", "data").status == 0
    assert widenet("predict", out, "--data", "data", "--out", tmp_path / "found.csv").status == 0
