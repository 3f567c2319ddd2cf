"""`widenet quantize` makes a run that every other command reads."""

import json

import pytest

from widenet.runs.made_of import num_bytes


@pytest.mark.usefixtures("inside")
def test_it_prints_the_bytes_and_the_fingerprint(widenet, tmp_path):
    out = tmp_path / "small"
    ended = widenet("quantize", "run", "--out", out)
    assert ended.status == 0
    size, fingerprint = ended.out.splitlines()
    assert size.startswith(f"{out}: ")
    assert widenet("fingerprint", out).out.strip() == fingerprint.split()[1]
    assert widenet("recommend", out, "The Hobbit").status == 0
    assert widenet("evaluate", out, "--data", "data").status == 0
    assert widenet("predict", out, "--data", "data", "--out", tmp_path / "found.csv").status == 0


@pytest.mark.usefixtures("inside")
def test_as_json(widenet, tmp_path):
    ended = widenet("quantize", "run", "--out", tmp_path / "small", "--json")
    found = json.loads(ended.out)
    assert found["run"] == str(tmp_path / "small")
    assert found["num_bytes"] == num_bytes(tmp_path / "small")
    assert found["num_bytes_before"] == num_bytes("run")
    assert found["fingerprint"] == widenet("fingerprint", tmp_path / "small").out.strip()
