"""Sequences from sources to recommendations: rows stay in order, the end is set aside, and what follows is
learned.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests import sequences
from tests.trainings import After
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.plan import tiles
from widenet.runs import Model, train

ROWS = """user,item,time,rating
ann,x,3,5
ann,y,1,5
ann,x,2,1
ben,z,2,4
ben,x,2,4
ben,z,1,4
cat,y,5,2
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def named(path, part="train"):
    """The sequences of a dataset, by the names of examples and features."""
    dataset = Dataset.open(path)
    found, names = dataset.sparse("items", slice(None), part), dataset.vocabulary("items")
    ends = found.indptr.tolist()
    rows = [" ".join(names.ids(found.indices[start:stop].numpy())) for start, stop in pairwise(ends)]
    return dict(zip(dataset.ids(slice(None)), rows, strict=True))


def test_rows_come_by_time_and_of_equal_times_as_the_source_has_them(source, tmp_path):
    manifest = ingest([source], tmp_path / "ds", sequence=True, time="time").manifest
    assert named(tmp_path / "ds") == {"ann": "y x x", "ben": "z z x", "cat": "y"}
    assert (manifest.fields["items"].kind, manifest.fields["items"].has_values) == ("sequence", False)
    verify(tmp_path / "ds", manifest)


@pytest.mark.parametrize("prefix", ["", "u"])
def test_the_order_survives_many_rows_threads_and_small_ids_or_names(prefix, tmp_path):
    length, users = 90_000, 7
    source = tmp_path / "rows.csv"
    source.write_text(
        "user,item\n" + "".join(f"{prefix}{row % users},{row % 1000}\n" for row in range(length))
    )
    ingest([source], tmp_path / "ds", sequence=True, threads=4)
    for user, found in named(tmp_path / "ds").items():
        first = int(user.removeprefix(prefix))
        assert found.split() == [str(row % 1000) for row in range(first, length, users)]


LISTS = [[3, 1, 3, 2], [2, 2], [1], []]


@pytest.fixture
def lists(tmp_path):
    dataset_from_lists(tmp_path / "lists", LISTS, width=5, sequence=True)
    return tmp_path / "lists"


@pytest.mark.parametrize(
    ("options", "train", "validation", "heldout"),
    [
        ({"heldout_last": 1}, ["3 1 3", "2", "1", ""], None, ["2", "2", "", ""]),
        (
            {"heldout_last": 1, "validation_last": 2},
            ["3", "2", "1", ""],
            ["1 3", "", "", ""],
            ["2", "2", "", ""],
        ),
        ({"validation_last": 9}, ["3", "2", "1", ""], ["1 3 2", "2", "", ""], None),
    ],
)
def test_the_end_is_set_aside_and_one_stays(options, train, validation, heldout, lists, tmp_path):
    manifest = split(lists, tmp_path / "ds", **options).manifest
    verify(tmp_path / "ds", manifest)
    for part, rows in (("train", train), ("validation", validation), ("heldout", heldout)):
        if rows is None:
            assert part not in manifest.fields["items"].parts
        else:
            assert list(named(tmp_path / "ds", part).values()) == rows
    assert Dataset.open(tmp_path / "ds").vocabulary("items").counts.sum() == len(" ".join(train).split())


EMBEDDED = {"name": "item", "units": 32, "activation": "linear"}
ALONG = {
    "gru": ([sequences.gru(units=32)], 0.04),
    "attention": ([EMBEDDED, sequences.attention(feed_forward=128)], 0.01),
}


@pytest.mark.parametrize(("layers", "rate"), ALONG.values(), ids=ALONG)
def test_layers_along_a_sequence_learn_what_follows_from_the_last_two_items(layers, rate, tmp_path):
    known = sequences.write(tmp_path / "data", examples=400, longest=12)
    training = {"epochs": 25, "batch_size": 64, "optimizer": {"kind": "adam", "learning_rate": rate}}
    network = {"layers": [sequences.HISTORY, *layers, sequences.NEXT]}
    model = train(network, training, known, tmp_path / "run")
    assert model.evaluate(known, ks=[1], exclude_seen=False)["recall@1"] > 0.95
    row = sequences.following(np.random.default_rng(8), 6)
    assert model.recommend([str(item) for item in row[:-1]], k=1, exclude_seen=False)[0].item == str(row[-1])


def _lists(dataset, part):
    found = dataset.sparse("items", slice(None), part)
    ends = found.indptr.tolist()
    return [found.indices[start:stop].tolist() for start, stop in pairwise(ends)]


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    return sequences.write(tmp_path_factory.mktemp("songs") / "data")


@pytest.mark.parametrize("name", [*sequences.SETTINGS][1::3])
def test_a_resumed_training_has_the_bits_of_an_undisturbed_one(name, songs, tmp_path):
    documents = sequences.documents(name)
    whole = train(*documents, songs, tmp_path / "whole").fingerprint()
    with pytest.raises(KeyboardInterrupt):
        train(*documents, songs, tmp_path / "run", interrupted=After(7))
    assert train(*documents, songs, tmp_path / "run", resume=True).fingerprint() == whole
    assert Model.load(tmp_path / "run").fingerprint() == whole


@pytest.fixture(scope="module")
def model(songs, tmp_path_factory):
    return train(
        *sequences.documents("gru over the items, adam"), songs, tmp_path_factory.mktemp("model") / "run"
    )


def logits(model, rows):
    """The best item of some histories, each by itself, with its score."""
    return [
        (best.item, best.score)
        for row in rows
        for best in model.recommend(list(map(str, row)), k=1, exclude_seen=False)
    ]


def test_the_final_evaluation_sees_what_comes_before_and_validation_only_what_it_may(model, songs):
    train_part, validation, heldout = (_lists(songs, part) for part in ("train", "validation", "heldout"))
    before = {
        "validation": train_part,
        "heldout": [first + second for first, second in zip(train_part, validation, strict=True)],
    }
    for part, truth in (("validation", validation), ("heldout", heldout)):
        hits = [
            best[0] == str(true[0])
            for row, true in zip(before[part], truth, strict=True)
            if row
            for best in logits(model, [row])
        ]
        found = model.evaluate(songs, part, ks=[1], exclude_seen=False)
        nothing_known = sum(not row for row in before[part])
        assert abs(found["recall@1"] * found["num_examples"] - sum(hits)) <= nothing_known


@pytest.mark.parametrize(
    ("hidden", "output"),
    [({"delta_norm": 0.5}, {}), ({}, {"delta_norm": 0.5}), ({"activation": "sigmoid", "sparseness": {}}, {})],
)
def test_a_batch_of_sequences_without_a_next_item_changes_nothing(hidden, output, tmp_path):
    layers = [*sequences.EMBEDDED, sequences.gru(), {**sequences.NEXT, **output}]
    layers[1] = {**layers[1], **hidden}
    training = {"epochs": 1, "shuffle": False, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    found = []
    for rows, size in (([[0], [], [2], [0, 1, 2]], 1), ([[0, 1, 2]], 8)):
        data = dataset_from_lists(tmp_path / f"data-{size}", rows, width=3, sequence=True)
        given = {"layers": layers}, {**training, "batch_size": size}, data
        found.append(train(*given, tmp_path / f"run-{size}").fingerprint())
    assert found[0] == found[1]


def test_outputs_that_share_a_weight_may_have_unlike_numbers_of_vectors(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    rows = [random.integers(600, size=int(random.integers(2, 9))).tolist() for _ in range(16)]
    data = dataset_from_lists(
        tmp_path / "data", rows, width=600, sequence=True, sparse={"label": [[599]] * 16}
    )
    label = {"name": "label", "kind": "output", "field": "label", "source": "state"}
    label["weights"] = {"layer": "out"}
    training = {"epochs": 1, "shards": 2, "optimizer": {"kind": "sgd", "learning_rate": 0.5}}
    found = []
    for cells in (2**20, 2**12):  # whole shards, then tiles of 256 and of 64 units or more
        monkeypatch.setitem(tiles.TILE_CELLS, "cpu", cells)
        monkeypatch.setattr(tiles, "LEAST_UNITS", 64)
        layers = [sequences.HISTORY, sequences.gru(), sequences.NEXT, label]
        model = train({"layers": layers}, training, data, tmp_path / str(cells), device="cpu")
        found.append(torch.cat([part.weight for part in model.network.wide["out"].parts.values()]))
    assert torch.allclose(*found, rtol=1e-5, atol=1e-7)
