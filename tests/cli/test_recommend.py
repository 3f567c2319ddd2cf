"""`widenet recommend` loads only what a person's recommendations take, and follows rules as the library."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.cli.conftest import NETWORK
from tests.mistakes import mistake
from widenet.data.ingest import ingest
from widenet.errors import DataError
from widenet.runs import Model, train

LOADED = """
import json, sys
from widenet.cli import main
for line in json.loads(sys.argv[1]):
    try:
        main(line)
    except SystemExit as ended:
        print(ended.code or 0, file=sys.stderr)
    print(*sorted({"pandas", "scipy", "torch"} & set(sys.modules)), file=sys.stderr)
"""
"""Runs command lines, and says after each how it ended and what has been loaded."""


def ended(inside, lines):
    """Standard output and standard error of command lines in one process, line by line."""
    command = [sys.executable, "-c", LOADED, json.dumps(lines)]
    found = subprocess.run(command, cwd=inside, capture_output=True, text=True, check=True)
    return found.stdout.splitlines(), found.stderr.splitlines()


def test_recommendations_load_torch_alone_of_the_slow_libraries(inside):
    items = ["0", "the hobbit", "hobbit"]
    shown, said = ended(inside, [["recommend", "run", "--items", item, "-k", "2"] for item in items])
    assert len(shown) == 2 * len(items)
    assert [line for line in said if line in ("0", "torch")] == ["0", "torch"] * len(items)
    assert said[-1] == "torch"


MISTAKES = [
    "recommend nowhere --items 0",
    "recommend data --items 0",
    "recommend run",
    "recommend run --data data",
    "recommend run --items 0 --where =x",
    "evaluate nowhere --data data",
    "evaluate run --data nowhere",
    "evaluate run --data data --interval 2",
    "predict nowhere --data data --out new.csv",
    "predict run --data nowhere --out new.csv",
    "predict run --data data --out new.csv --at-most genre=x",
    "fingerprint nowhere",
    "train nowhere.json training.json --data data --out new",
    "train network.json training.json --data nowhere --out new",
    "train training.json network.json --data data --out new",
    "train network.json training.json --data data --out run",
]


def test_a_mistake_is_told_before_torch_is_loaded(inside):
    _, said = ended(inside, [line.split() for line in MISTAKES])
    for line, message, status, loaded in zip(MISTAKES, said[::3], said[1::3], said[2::3], strict=True):
        assert message.startswith("widenet: "), line
        assert status == "2", line
        assert loaded in ("", "pandas"), line  # pyarrow loads pandas


GENRES = ["poetry", "drama", "novel"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    likes = [f"u{user},{(user + step) % 20}" for user in range(30) for step in (0, 2, 5, 7)]
    (folder / "likes.csv").write_text("\n".join(["user,item", *likes]) + "\n")
    rows = [f"{item},The {item}th,{GENRES[item % 3]},{str(item % 4 > 0).lower()}" for item in range(20)]
    (folder / "books.csv").write_text("\n".join(["item,title,genre,in_stock", *rows, "77,New,,"]) + "\n")
    (folder / "network.json").write_text(json.dumps(NETWORK))
    (folder / "training.json").write_text('{"epochs": 1, "batch_size": 8, "shards": 2}')
    return folder


@pytest.fixture
def trained(folder, widenet, monkeypatch):
    monkeypatch.chdir(folder)
    if not (folder / "run").exists():
        ended = widenet("data", "ingest", "likes.csv", "--out", "data", "--items", "books.csv")
        assert ended.status == 0
        assert widenet("train", "network.json", "training.json", "--data", "data", "--out", "run").status == 0
    return Model.load(folder / "run")


def test_recommend_takes_the_rules(trained, widenet):
    asked = ("recommend", "run", "--items", "3", "5", "-k", "5", "--json")

    def shown(*words):
        return [row["item"] for row in json.loads(widenet(*asked, *words).out)]

    def expected(**rules):
        return [row.item for row in trained.recommend(["3", "5"], k=5, **rules)]

    assert shown("--at-most", "genre=1") == expected(at_most={"genre": 1})
    assert shown("--where", "in_stock") == expected(where={"in_stock": True})
    assert shown("--where", "in_stock=false") == expected(where={"in_stock": False})
    assert shown("--where", "genre=poetry", "--where", "genre=novel", "--where", "in_stock") == expected(
        where={"genre": ["poetry", "novel"], "in_stock": True}
    )
    assert shown("--at-most", "genre=2", "--at-most", "in_stock=4") == expected(
        at_most={"genre": 2, "in_stock": 4}
    )


def test_items_have_attributes(trained):
    assert trained.attributes_of(["3"]) == [{"genre": "poetry", "in_stock": True}]
    with mistake(DataError):
        trained.attributes_of(["3", "Emma"])


@pytest.fixture(scope="module")
def linear(folder):
    """A linear network, whose scores can be explained."""
    ingest(folder / "likes.csv", folder / "linear-data", titles=folder / "books.csv")
    document = json.loads((folder / "network.json").read_text())
    document["layers"][1]["activation"] = "linear"
    training = {"epochs": 1, "batch_size": 8, "shards": 2}
    return train(document, training, folder / "linear-data", folder / "linear")


@pytest.mark.parametrize(
    "words",
    [
        ("--items", "5", "--items=3", "8"),
        ("--items", "5", "3", "--items", "8"),
        ("-k", "8", "--items", "5", "--items", "3", "8"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_items_stand_in_the_order_of_the_command_line(words, widenet):
    ended = widenet("recommend", "run", *words)
    assert ended.err.splitlines()[0] == "With items: The 5th; The 3th; The 8th"


def test_reasons_are_those_of_the_library(linear, widenet):
    asked = ("recommend", linear.run.path, "-k", "2", "--explain")
    for words, known in (
        (("--items", "3", "5", "8", "9"), {"items": ["3", "5", "8", "9"]}),
        (("--user", "u1"), {"user": "u1"}),
    ):
        found = json.loads(widenet(*asked, *words, "--json").out)
        assert [row["because"] for row in found] == [
            [asdict(each) for each in linear.explain(row["item"], **known)] for row in found
        ]
        lines = widenet(*asked, *words).out.splitlines()
        assert [line.split()[0] for line in lines] == ["1", "because", "2", "because"]
        listed = lines[1].strip().removeprefix("because of ").split("; ")
        assert listed == [
            f"{each['title']} ({each['item']}) {each['score']:+.3g}" for each in found[0]["because"][:3]
        ]
