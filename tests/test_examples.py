"""The commands of examples/movielens-20m run from the download to P@10, on generated files of the layout of
MovieLens 20M.
"""

import csv
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from benchmarks.movielens import MOVIES, write_files
from tests.commands import blocks, commands
from tests.data.web import served
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
