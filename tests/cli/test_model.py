"""Commands on a run: what they print and write is what the library gives."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from widenet.data.dataset import Dataset
from widenet.runs import Model

SPLIT = ["--data", "data"]


@pytest.fixture
def model(inside):
    return Model.load(inside / "run")


def test_evaluate_prints_a_table(widenet, model):
    found = model.evaluate("data", "validation", ks=[2, 5], exclude_seen=False)
    lines = widenet(
        "evaluate", "run", *SPLIT, "-k", 5, "-k", 2, "--part", "validation", "--include-seen"
    ).out.splitlines()
    assert lines[0].split() == ["@2", "@5"]
    assert lines[2].split() == ["recall", f"{found['recall@2']:.4f}", f"{found['recall@5']:.4f}"]
    assert len(lines) == 10
    assert lines[-1] == "over 12 users"


def rows_of(path):
    """(user, item, score) of every recommendation in a file, in its order."""
    if path.suffix == ".parquet":
        return [(row["user"], row["item"], row["score"]) for row in pq.read_table(path).to_pylist()]
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        return [(row["user"], row["item"], float(row["score"])) for row in csv.DictReader(text.splitlines())]
    return [
        (user["user"], one["item"], one["score"])
        for user in map(json.loads, text.splitlines())
        for one in user["items"]
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_predict_writes_the_recommendations_of_every_user_in_every_format(suffix, widenet, model, tmp_path):
    out = tmp_path / f"out.{suffix}"
    ended = widenet("predict", "run", *SPLIT, "--out", out, "-k", 3)
    data = Dataset.open("data")
    titles = data.vocabulary("items")
    expected = []
    for row, user in enumerate(data.ids(slice(None))):
        history = titles.ids(data.sparse("items", slice(row, row + 1)).indices.numpy())
        parts = [
            data.sparse("items", slice(row, row + 1), part).indices.numpy()
            for part in ("validation", "heldout")
        ]
        aside = {name for part in parts for name in titles.ids(part)}
        found = [one for one in model.recommend(history, k=9) if one.item not in aside]
        expected += [(user, one.item, one.score) for one in found[:3]]
    assert len(expected) > 24
    assert (ended.status, ended.out) == (0, f"{out}: {len(expected)} recommendations for 12 users.\n")
    found = rows_of(out)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], rel=1e-5)


@pytest.mark.parametrize("asked", [["--items", "The Hobbit", "the b"], ["--items", "0", "--items", "1"]])
def test_recommend_takes_ids_titles_and_parts_of_titles(asked, widenet, model):
    expected = model.recommend(["0", "1"], k=2)
    ended = widenet("recommend", "run", *asked, "-k", 2)
    assert ended.status == 0
    assert ended.err == "With items: The Hobbit; The B\n"
    assert ended.out.splitlines() == [
        f"{rank:>4}  {one.score:<10.4g}  {one.title}  ({one.item})" for rank, one in enumerate(expected, 1)
    ]
