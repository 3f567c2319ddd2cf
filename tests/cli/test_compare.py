"""`widenet compare`: what it prints is what the library gives."""

import pytest

import widenet as library


@pytest.mark.usefixtures("inside")
def test_compare_prints_a_line_for_each_metric(widenet):
    ended = widenet("compare", "run", "run", "--data", "data", "-k", 5, "-k", 2)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["run", "run", "difference", "95", "%", "interval", "p"]
    assert len(lines) == 14
    mean = library.Model.load("run").evaluate("data", ks=[2])["ndcg@2"]
    found = next(line for line in lines if line.startswith("ndcg@2 ")).split()
    assert found == ["ndcg@2", *[f"{mean:.4f}"] * 2, "+0.0000", "+0.0000", "to", "+0.0000", "1.0000"]
    assert lines[-1] == "over 12 users"
