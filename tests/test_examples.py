"""The commands of examples/movielens-20m run from the download to P@10, on generated files of the layout of
MovieLens 20M; and the documents of examples/extreme find the labels of generated points.
"""

import csv
import json
import math
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import widenet
from benchmarks.movielens import MOVIES, write_files
from tests.commands import blocks, commands
from tests.data.web import served
from tests.extreme import LABELS, write_points
from widenet.cli import main
from widenet.data import published as fetch
from widenet.data.dataset import Dataset

ROOT = Path(__file__).parent.parent
EXAMPLE = "examples/movielens-20m"
USERS, RATINGS, RATED = 60, 1500, 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current directory: the example, and generated files, whose archive this machine serves."""
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    for path in tmp_path.glob(f"{EXAMPLE}/*training.json"):
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "epochs": 1}), "utf-8")
    write_files(tmp_path, USERS, RATINGS, RATED)
    with zipfile.ZipFile(tmp_path / "ml-20m.zip", "w") as archive:
        for name in ("ratings.csv", "movies.csv"):
            archive.write(tmp_path / name, f"ml-20m/{name}")
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with served() as web:
        web.files["/ml-20m.zip"] = (tmp_path / "ml-20m.zip").read_bytes()
        table = fetch.TABLE.read_text("utf-8")
        local = table.replace(
            "https://files.grouplens.org/datasets/movielens/ml-20m.zip", f"{web.address}/ml-20m.zip"
        )
        local = local.replace(', checksum = "md5:cd245b17a1ae2cc31bb14903e1204af3"', "")
        (tmp_path / "published.toml").write_text(local, "utf-8")
        monkeypatch.setattr(fetch, "TABLE", tmp_path / "published.toml")
        yield tmp_path


def test_the_commands_of_movielens_run_from_the_download_to_precision(folder, capsys):
    readme = (folder / EXAMPLE / "README.md").read_text("utf-8")
    with (folder / "ratings.csv").open(encoding="utf-8", newline="") as file:
        ratings = list(csv.DictReader(file))
    with (folder / "movies.csv").open(encoding="utf-8", newline="") as file:
        movies = {row["movieId"]: row["title"] for row in csv.DictReader(file)}
    assert (len(ratings), len({row["userId"] for row in ratings})) == (RATINGS, USERS)
    assert (len(movies), len({row["movieId"] for row in ratings})) == (MOVIES, RATED)
    titles = dict(
        zip(("Toy Story (1995)", "Heat (1995)"), (movies[row["movieId"]] for row in ratings), strict=False)
    )
    printed = []
    for words in [words for block in blocks(readme, "bash") for words in commands(block)]:
        agreed = ["--accept-licence"] if words[:2] == ["data", "fetch"] else []
        with pytest.raises(SystemExit) as ended:
            main([*(titles.get(word, word) for word in words), *agreed])
        out, err = capsys.readouterr()
        assert ended.value.code in (0, None), (words, err)
        printed.append((words[0], out.splitlines()))
    whole = Dataset.open(folder / "data/ml-20m-whole")
    assert whole.fields["items"].num_entries["train"] == RATINGS
    names = whole.vocabulary("items")
    assert names.titles(range(RATED)) == [movies[number] for number in names.ids(range(RATED))]
    for lines in (lines for name, lines in printed if name == "evaluate"):
        (found,) = (line.split() for line in lines if line.startswith("precision"))
        assert 0 < float(found[1]) < 1


def command(*words):
    """Run a command, which must succeed."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code in (0, None)


@pytest.mark.parametrize("kind", ["", "linear-"])
def test_the_presets_of_extreme_classification_find_labels(kind, tmp_path, capsys):
    """The command line prints the psp@3 that loops over its own recommendations give."""
    files = [tmp_path / name for name in ("train.txt", "test.txt", "filter.txt")]
    trained, tested = write_points(files[0], 1500, 0), write_points(files[1], 80, 1)
    files[2].write_text("0 0\n3 1\n")
    data, test, run = tmp_path / "data", tmp_path / "test", tmp_path / "run"
    points = ["data", "extreme", files[0], "--out", data, "--test", files[1]]
    command(*points, "--test-out", test, "--filter-pairs", files[2])
    documents = [ROOT / f"examples/extreme/{kind}{name}.json" for name in ("network", "training")]
    command("train", *documents, "--data", data, "--out", run)
    capsys.readouterr()
    command("evaluate", run, "--data", test, "-k", "1", "-k", "3", "--propensity", "0.55,1.5", "--json")
    found = json.loads(capsys.readouterr().out)
    lists = {}
    for block in widenet.Model.load(run).predict(test, 3, part="heldout"):
        for user, items in zip(block.users, np.split(block.items, np.cumsum(block.counts)[:-1]), strict=True):
            lists[str(user)] = [int(item) for item in items]
    truths = [labels for labels, _ in tested]
    truths[0], truths[3] = (sorted(set(truths[row]) - {label}) for row, label in ((0, 0), (3, 1)))
    counts = Counter(label for labels, _ in trained for label in labels)
    scale = (math.log(1500) - 1) * 2.5**0.55
    inverse = [1 + scale * (counts[label] + 1.5) ** -0.55 for label in range(LABELS)]
    hits = sum(
        inverse[item] for row, own in enumerate(truths) for item in lists[f"test-{row}"] if item in own
    )
    best = sum(sum(sorted((inverse[label] for label in own), reverse=True)[:3]) for own in truths)
    assert found["psp@3"] == pytest.approx(hits / best, abs=1e-6)
    assert 0 not in lists["test-0"]
    assert found["precision@1"] > 0.5
