"""`widenet quantize` makes runs that every other command reads."""

import pytest


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
