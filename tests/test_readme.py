"""The commands of the README do what it shows."""

import json
import random
from pathlib import Path

import pytest

import widenet
from tests.commands import blocks, commands
from tests.serve.conftest import service
from widenet.cli.app import main
from widenet.spec.training import TrainingSpec

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """An empty folder with the files that the README begins from, as the current directory."""
    chance = random.Random(0)
    rows = [
        f"{user},{book},{chance.choice((3, 4, 5))}"
        for user in range(40)
        for book in chance.sample(range(30), 15)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(["user_id,book_id,rating", *rows, ""]), "utf-8")
    titles = ["The Hobbit", "Emma", *(f"Book {book}" for book in range(2, 30))]
    (tmp_path / "books.csv").write_text(
        "\n".join(["id,title", *(f"{book},{title}" for book, title in enumerate(titles)), ""]), "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_one_epoch(path):
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "epochs": 1}), "utf-8")


def test_what_it_shows_to_use_works(sources, capsys):
    printed = {}
    shown = [words for block in blocks(README, "bash") for words in commands(block)]
    (serving,) = (words for words in shown if words[0] == "serve")
    for words in shown:
        if words is serving:
            continue
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = capsys.readouterr()
        assert ended.value.code in (0, None), (words, err)
        printed[words[0]] = out.splitlines()
    assert (sources / "recommendations.parquet").stat().st_size > 0
    assert [int(line.split()[0]) for line in printed["recommend"][-10:]] == list(range(1, 11))
    assert printed["plan"][-1].startswith("Fits: ")
    with service(*serving[1:]) as running:
        answered = running.recommend(items=["0", "1"], k=10)
    assert [f"{item['title']}  ({item['item']})" for item in answered.json["items"]] == [
        line.split(maxsplit=2)[2] for line in printed["recommend"][-10:]
    ]


def test_the_documents_it_shows_train(sources):
    network, training = (block for block in blocks(README, "json"))
    (sources / "network.json").write_text(network, "utf-8")
    (sources / "training.json").write_text(training, "utf-8")
    assert TrainingSpec.read(sources / "training.json").epochs > 1
    in_one_epoch(sources / "training.json")
    data = widenet.ingest("ratings.csv", "data/books")
    assert widenet.train("network.json", "training.json", data, "runs/shown").run.records()


@pytest.mark.usefixtures("sources")
def test_what_it_shows_of_python_works(capsys):
    (example,) = blocks(README, "python")
    exec(compile(example, "README.md", "exec"), {})
    recommended, heading, *table = capsys.readouterr().out.splitlines()
    assert recommended.count("Recommendation(") == 10
    assert heading.split() == ["user", "item", "title", "score", "rank"]
    assert len(table) == 20
