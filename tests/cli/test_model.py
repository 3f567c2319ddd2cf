"""Commands on a run: what they print and write is what the library gives."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.runs import Model

SPLIT = ["--data", "data"]


@pytest.fixture
def model(inside):
    return Model.load(inside / "run")


def test_evaluate_prints_the_metrics_as_json(widenet, model):
    ended = widenet("evaluate", "run", *SPLIT, "--json", "-k", 3, "--k", 1)
    assert (ended.status, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found == model.evaluate("data", ks=[1, 3]) | {"num_seen": 0}
    assert isinstance(found["num_examples"], int)


def test_evaluate_counts_the_true_items_that_users_had_before(widenet, model, tmp_path):
    names = model.run.vocabulary("items")
    known = dataset_from_lists(
        tmp_path / "again",
        [[0, 1], [2, 3], [4, 0]],
        validation=[[2], [4], [1]],
        heldout=[[2, 5, 1], [5], [3, 4]],
        item_ids=names.ids(range(9)),
        titles=names.titles(range(9)),
    )
    command = ["evaluate", "run", "--data", known.path]
    assert widenet(*command).err.startswith("3 true items ")
    assert "true items" not in widenet(*command, "--include-seen").err
    assert json.loads(widenet(*command, "--json").out)["num_seen"] == 3
    assert "num_seen" not in json.loads(widenet(*command, "--json", "--include-seen").out)


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
    if path.suffix == ".jsonl":
        return [
            (user["user"], one["item"], one["score"])
            for user in map(json.loads, text.splitlines())
            for one in user["items"]
        ]
    parted = [line.split("\t") for line in text.splitlines()]
    return [
        (user, item, float(score))
        for user, rest in parted
        for item, score in (one.split(",") for one in rest.split(":") if one)
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "dsstne"])
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
    precision = {"abs": 6e-4} if suffix == "dsstne" else {"rel": 1e-5}
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], **precision)


def test_predict_for_a_part_writes_what_its_evaluation_ranks(widenet, model, tmp_path):
    out = tmp_path / "out.csv"
    ended = widenet("predict", "run", *SPLIT, "--out", out, "-k", 3, "--part", "validation")
    assert (ended.status, ended.err) == (0, "")
    data = Dataset.open("data")
    users = data.ids(slice(None))
    batch = data.sparse("items", slice(None), "validation")
    true = list(
        zip(
            (users[row] for row in batch.example_of_entry()),
            data.vocabulary("items").ids(batch.indices.numpy()),
            strict=True,
        )
    )
    shown = {row[:2] for row in rows_of(out)}
    shares = [
        np.mean([each in shown for each in true if each[0] == user])
        for user in dict.fromkeys(user for user, _ in true)
    ]
    assert np.mean(shares) == pytest.approx(
        model.evaluate("data", "validation", ks=[3])["recall@3"], rel=0, abs=1e-12
    )


@pytest.mark.usefixtures("inside")
def test_predict_takes_a_format_for_any_name_and_filters(widenet, tmp_path):
    (tmp_path / "never").write_text("0\n1\n")
    (tmp_path / "never_for").write_text("user,item\nu0,2\nnobody,2\n")
    (tmp_path / "weights").write_text("item,weight\n3,100\n")
    filters = [
        "--never",
        tmp_path / "never",
        "--never-for",
        tmp_path / "never_for",
        "--weights",
        tmp_path / "weights",
    ]
    ended = widenet(
        "predict",
        "run",
        *SPLIT,
        "--out",
        tmp_path / "recommendations",
        "--format",
        "csv",
        "--include-seen",
        *filters,
    )
    assert str(tmp_path / "never_for") in ended.err
    rows = list(csv.DictReader((tmp_path / "recommendations").read_text().splitlines()))
    shown = {user: [row["item"] for row in rows if row["user"] == user] for user in ("u0", "u1")}
    assert (len(shown["u0"]), len(shown["u1"])) == (6, 7)
    assert set(shown["u1"]) - set(shown["u0"]) == {"2"}
    assert shown["u0"][0] == shown["u1"][0] == "3"


@pytest.mark.usefixtures("inside")
def test_predict_never_replaces_a_file_and_leaves_none_that_is_not_complete(widenet, tmp_path):
    out = tmp_path / "out.csv"
    (tmp_path / "never").write_text("unknown\n")
    assert widenet("predict", "run", *SPLIT, "--out", out, "--never", tmp_path / "never").status == 2
    assert not out.exists()
    assert widenet("predict", "run", *SPLIT, "--out", out).status == 0
    before = out.read_bytes()
    ended = widenet("predict", "run", *SPLIT, "--out", out, "-k", 1)
    assert (ended.status, out.read_bytes()) == (2, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["never", "out.csv"]


@pytest.mark.parametrize(
    "asked", [["--items", "The Hobbit", "the b"], ["The Hobbit", "1"], ["--items", "0", "--items", "1"]]
)
def test_recommend_takes_ids_titles_and_parts_of_titles(asked, widenet, model):
    expected = model.recommend(["0", "1"], k=2)
    ended = widenet("recommend", "run", *asked, "-k", 2)
    assert ended.status == 0
    assert ended.err == "For somebody with: The Hobbit; The B\n"
    assert ended.out.splitlines() == [
        f"{rank:>4}  {one.score:<10.4g}  {one.title}  ({one.item})" for rank, one in enumerate(expected, 1)
    ]


def test_recommend_prints_one_json_list(widenet, model):
    ended = widenet("recommend", "run", "hobbit", "--json", "-k", 20, "--include-seen")
    expected = model.recommend(["0"], k=20, exclude_seen=False)
    assert json.loads(ended.out) == [
        {"item": one.item, "title": one.title, "score": one.score} for one in expected
    ]
    assert (len(expected), ended.err) == (9, "")


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("more", [[], ["--include-seen"]])
def test_recommend_for_a_user_gives_what_predict_gives(more, widenet, tmp_path):
    widenet("predict", "run", *SPLIT, "--out", tmp_path / "all.csv", "-k", 9, *more)
    expected = [row for row in rows_of(tmp_path / "all.csv") if row[0] == "u3"]
    ended = widenet("recommend", "run", "--user", "u3", *SPLIT, "-k", 9, "--json", *more)
    found = json.loads(ended.out)
    assert (ended.status, ended.err) == (0, "")
    assert [each["item"] for each in found] == [item for _, item, _ in expected]
    assert [each["score"] for each in found] == pytest.approx([score for *_, score in expected], rel=1e-5)
    assert found[0]["title"].startswith("The ")
    data = Dataset.open("data")
    titles = data.vocabulary("items").titles(
        data.sparse("items", np.array([data.row_of("u3")])).indices.numpy()
    )
    assert widenet("recommend", "run", "--user", "u3", *SPLIT).err == f"For u3 with: {'; '.join(titles)}\n"
    of_the_training = widenet("recommend", "run", "--user", "u3", "-k", 9, "--json", *more)
    assert json.loads(of_the_training.out) == found


@pytest.mark.usefixtures("inside")
def test_filters_leave_out_the_items_of_a_file(widenet, tmp_path):
    def found(*words):
        return [
            each["item"] for each in json.loads(widenet("recommend", "run", *words, "--json", "-k", 9).out)
        ]

    everything = found("--items", "0")
    (tmp_path / "two.txt").write_text("\n".join(everything[1:3]), "utf-8")
    assert found("--items", "0", "--never", tmp_path / "two.txt") == [everything[0], *everything[3:]]
    assert found("--items", "0", "--only", tmp_path / "two.txt") == everything[1:3]
    widenet("predict", "run", *SPLIT, "--out", tmp_path / "all.csv", "--only", tmp_path / "two.txt")
    assert {item for _, item, _ in rows_of(tmp_path / "all.csv")} == set(everything[1:3])


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_recommend_says_which_of_several_titles_it_takes(more, widenet, model):
    names = model.run.vocabulary("items")
    taken, *others = names.shown(names.find("re"))
    assert len(others) == 1
    said = widenet("recommend", "run", "re", *more).err.splitlines()[0]
    assert said.index(taken) < said.index(others[0])
    ended = widenet("recommend", "run", "the", *more)
    assert (ended.status, ended.out) == (2, "")


def test_fingerprint_prints_that_of_the_weights(widenet, model):
    ended = widenet("fingerprint", "run")
    assert (ended.out, ended.err) == (f"{model.fingerprint()}\n", "")


def pairs(data, part):
    """The ids and features of all entries of a part."""
    batch = data.sparse("items", slice(None), part)
    return [data.ids(slice(None))[row] for row in batch.example_of_entry().tolist()], batch.indices.tolist()


@pytest.mark.usefixtures("inside")
def test_evaluate_says_what_of_a_part_was_trained_on(widenet, tmp_path):
    other = tmp_path / "other"
    assert widenet("data", "split", "whole", "--out", other, "--heldout", 0.25, "--seed", 1).status == 0
    ended = widenet("evaluate", "run", "--data", other, "--json")
    first, second = Dataset.open("data"), Dataset.open(other)
    kept, held = [
        set(zip(*pairs(one, part), strict=True)) for one, part in ((first, "train"), (second, "heldout"))
    ]
    number = len(kept & held)
    assert (ended.status, ended.err.count("\n")) == (0, 1)
    assert f"{number} of the {len(held)} entries" in ended.err
    assert 0 < number < len(held)
