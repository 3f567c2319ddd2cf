"""Points with labels are told as such, from the dataset to the report: nobody has users and items there."""

import json
import re
from pathlib import Path

from tests.extreme import write_points
from tests.pages import Page
from widenet.data.dataset import Dataset
from widenet.ui.data_page import data_page

NETWORK = {
    "layers": [
        {"name": "text", "kind": "input", "field": "features"},
        {"name": "topic", "units": 4},
        {"name": "tags", "kind": "output", "field": "labels"},
    ]
}
TRAINING = {"epochs": 1, "shards": 2, "batch_size": 8}


def test_points_and_labels_have_their_own_words(widenet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path / "train.txt", 24, 0)
    write_points(tmp_path / "test.txt", 12, 1)
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    said = {}
    for line in (
        "data extreme train.txt --out points --test test.txt --test-out test",
        "data describe points",
        "train network.json training.json --data points --out run",
        "evaluate run --data test -k 2 --keep",
        "predict run --data test --out found.csv -k 3",
        "report run --data test --overwrite",
    ):
        ended = widenet(*line.split())
        assert ended.status == 0, ended.err
        said[line.split("points")[0]] = ended.out + ended.err
    report = Page((tmp_path / "run" / "report.html").read_text())
    del report.texts["style"]
    said["report"] = report.text
    test = Dataset.open("test")
    for row in (None, "test-3", "unknown"):
        said[f"page of {row}"] = Page(data_page(test, None, "1", row)).text
    assert {
        place: found
        for place, text in said.items()
        if (found := re.findall(r".*\b(?:[Uu]ser|[Ii]tem)s?\b.*", text))
    } == {}
    everything = "\n".join(said.values())
    for words in (
        "points: 24 points",
        "entries per point",
        "entries per label",
        "entries per feature",
        "points/s",
        "over 12 points",
        "recommendations for 12 points",
        "heldout, 12 points",
        "40 labels are among them",
        "Find points by id, and labels and features by id or title",
        "Point test-3",
        'no point is called "unknown"',
    ):
        assert words in everything, words


def test_a_description_says_which_titles_and_attributes_there_are(widenet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("likes.csv").write_text("user,item\n1,a\n1,b\n2,a\n")
    Path("items.csv").write_text("id,title,genre,year\na,Emma,novel,1815\nb,,play,1990\n")
    assert widenet(*["data", "ingest", "likes.csv", "--items", "items.csv", "--out", "named"]).status == 0
    assert widenet(*["data", "ingest", "likes.csv", "--out", "plain"]).status == 0
    assert (
        "  titles: 1\n  attributes: genre (text), year (number)\n" in widenet("data", "describe", "named").out
    )
    described = widenet("data", "describe", "plain").out
    assert "  titles: none\n" in described
    assert "attributes" not in described
    field = json.loads(widenet("data", "describe", "named", "--json").out)["fields"]["items"]
    assert (field["titles"], field["attributes"]) == (1, {"genre": "text", "year": "number"})
