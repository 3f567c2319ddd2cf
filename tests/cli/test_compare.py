"""`widenet compare`: what it prints is what the library gives."""

import json
import re
from pathlib import Path

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


@pytest.mark.usefixtures("inside")
def test_compare_prints_json_with_all_digits(widenet):
    ended = widenet("compare", "run", "run", "--data", "data", "--part", "validation", "--json")
    found = library.compare("run", Path("run"), "data", "validation")
    document = json.loads(ended.out)
    assert (document["level"], document["num_examples"]) == (0.95, found.num_examples)
    assert document["metrics"]["ndcg@20"]["first"] == found.metrics["ndcg@20"].first


@pytest.mark.usefixtures("inside")
def test_evaluate_prints_the_bounds_of_intervals(widenet):
    found = library.Model.load("run").evaluate("data", ks=[2, 5], interval=0.9)
    line = ["evaluate", "run", "--data", "data", "-k", 5, "-k", 2, "--interval", 0.9]
    lines = widenet(*line).out.splitlines()
    lower, upper = found.intervals["recall@5"]
    at = next(index for index, each in enumerate(lines) if each.startswith("recall"))
    assert [lines[at + 1].split()[-1], lines[at + 2].split()[-1]] == [f"{lower:.4f}", f"{upper:.4f}"]
    assert json.loads(widenet(*line, "--json").out)["intervals"]["recall@5"] == [lower, upper]


@pytest.mark.usefixtures("inside")
def test_evaluate_prints_the_baselines(widenet, monkeypatch):
    monkeypatch.setattr("widenet.baselines.measure.find_spec", lambda _: None)
    line = ["evaluate", "run", "--data", "data", "-k", 2, "--baselines"]
    ended = widenet(*line)
    *begun, inverse, without = ended.err.splitlines()
    assert ended.status == 0
    assert begun == [f"measuring {name} ..." for name in ("popularity", "item-kNN", "SLIM")]
    assert "EASE" in inverse
    assert "ALS" in without
    lines = [each.split() for each in ended.out.splitlines()]
    whole = json.loads(widenet(*line, "--json").out)
    found = whole["baselines"]
    recalls = [(row[0], row[lines[0].index("recall")], row[-1]) for row in lines[1:]]
    methods = {"run": whole} | {name: found[name] for name in ("popularity", "item-kNN", "SLIM", "EASE")}
    assert recalls == [(name, f"{own['recall@2']:.4f}", "12") for name, own in methods.items()]
    assert (
        found["EASE"].keys()
        == found["item-kNN"].keys()
        == library.Model.load("run").evaluate("data", ks=[2]).keys()
    )


@pytest.mark.usefixtures("inside")
def test_evaluate_prints_groups_and_metrics_beyond_accuracy(widenet):
    line = ["evaluate", "run", "--data", "data", "-k", 2, "--groups", "--beyond"]
    (_, *names), *rows = [re.split(r"  +", each) for each in widenet(*line).out.splitlines()]
    values = {name.partition(" (")[0]: dict(zip(names, row, strict=False)) for name, *row in rows}
    found = json.loads(widenet(*line, "--json").out)
    assert values["run"]["gini"] == f"{found['gini@2']:.4f}"
    tail = found["groups"]["tail items"]
    assert values["tail items"]["recall"] == f"{tail['recall@2']:.4f}"
    assert f"tail items ({tail['least']} to {tail['most']})" in {name for name, *_ in rows}
    assert "new users" in values
