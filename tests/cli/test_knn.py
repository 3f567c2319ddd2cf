"""`widenet knn`: what the library finds, as text."""

import json

import numpy as np
import pytest

from widenet.knn.neighbours import Neighbours
from widenet.runs import Model


def test_like_shows_the_nearest_items_without_the_item_itself(widenet, inside):
    model = Model.load(inside / "run")
    names = model.run.vocabulary("items")
    position = names.find("hobbit")[0]
    collection = Neighbours.of_model(model)
    (scores,), (positions,) = collection.search(collection.vectors([position]), 4)
    assert positions[0] == position
    ended = widenet("knn", "like", "run", "hobbit", "-k", 3, "--json")
    assert (ended.status, ended.err) == (0, "")
    expected = zip(names.ids(positions[1:]), names.titles(positions[1:]), scores[1:].tolist(), strict=True)
    assert [tuple(row.values()) for row in json.loads(ended.out)] == list(expected)
    ended = widenet("knn", "like", "run", "The Hobbit", "-k", 20, "--layer", "history", "--measure", "l2")
    assert (ended.status, ended.err) == (0, "Like: The Hobbit\n")
    assert [line.split()[0] for line in ended.out.splitlines()] == [str(rank) for rank in range(1, 9)]


@pytest.fixture
def vectors(tmp_path, monkeypatch):
    """Two files of vectors and one of queries, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ä\t1 0\nb\t0.5 0.25\n")
    np.save("b.npy", np.array([[0, 3], [1, 0]]))
    (tmp_path / "queries.txt").write_text("q\t1 0\nr\t0 1\n")
    return tmp_path


def answer(key, *neighbours):
    scored = ", ".join(f'{{"key": "{key}", "score": {score}}}' for key, score in neighbours)
    return f'{{"key": "{key}", "neighbours": [{scored}]}}\n'


ANSWER = answer("q", ("ä", 1.0), ("1", 1.0), ("b", 0.5)) + answer("r", ("0", 3.0), ("b", 0.25), ("ä", 0.0))


@pytest.mark.usefixtures("vectors")
def test_search_writes_a_json_line_a_query(widenet):
    command = ["knn", "search", "a.txt", "b.npy", "--queries", "queries.txt", "-k", 3]
    ended = widenet(*command)
    assert (ended.status, ended.out, ended.err) == (0, ANSWER, "")
    nearest = json.loads(widenet(*command, "--measure", "l2", "--stored", "bfloat16").out.splitlines()[1])[
        "neighbours"
    ][0]
    assert nearest == {"key": "b", "score": 0.8125**0.5}
