"""A row of the benchmark of neighbourhoods against a training of these very settings."""

import json

import pytest

from benchmarks import latest, neighbourhoods, usual
from benchmarks.__main__ import parser
from benchmarks.places import presets
from tests.benchmarks.toys import cells_of
from widenet import split, train
from widenet.runs.documents import documents
from widenet.spec.layers import Neighbourhood


def test_a_row_of_settings_is_the_training_of_these_settings(ordered, tmp_path, capsys):
    words = f"neighbourhoods gowalla --ordered {ordered} --users 50 --units 3 --epochs 1 --neighbours 4"
    words += " --floors 0.02 --weights 0.5 --popularities 0.4 --temperatures 0.1 0.3 --others 1 0.5"
    neighbourhoods.run(parser().parse_args(words.split()))
    printed = cells_of(capsys.readouterr().out.partition("for validation")[2])
    assert [row[:6] for row in printed[:2]] == [
        ["1", "no term", "-", "-", "-", heat] for heat in ("0.1", "0.3")
    ]
    assert len(printed) == 8
    network, training = (json.loads(path.read_text()) for path in presets("gowalla")["neighbours"])
    network["layers"][1]["units"] = 3
    term = {"weight": 0.5, "floor": 0.02, "neighbours": 4, "popularity": 0.4}
    network["layers"][2] |= {
        "delta_boost": {"other": 0.5},
        "cosine": {"temperature": 0.1, "prediction_temperature": 0.3},
        "neighbourhood": term,
    }
    dataset = latest.cut_latest(ordered, 0.2, tmp_path)
    metrics = train(network, {**training, "epochs": 1}, dataset, tmp_path / "run").evaluate(dataset, ks=(20,))
    assert printed[-1][:8] == [
        *["0.5", "4", "0.02", "0.5", "0.4", "0.3"],
        f"{metrics['recall@20']:.4f}",
        f"{metrics['ndcg@20']:.4f}",
    ]


def test_default_documents_are_measured_on_any_set(monkeypatch, tmp_path, capsys):
    rows = [(f"u{user}", f"i{(user * 3 + step * step) % 17}") for user in range(40) for step in range(12)]
    monkeypatch.setitem(
        neighbourhoods.SETS, "topics", (lambda folder: usual.hold_out(sorted(set(rows)), folder), None)
    )
    words = "neighbourhoods topics --default --share 0.1 --units 3 --neighbours 4 --floors 0.02 --weights 0.5"
    neighbourhoods.run(parser().parse_args(words.split()))
    without, with_term = cells_of(capsys.readouterr().out.partition("for validation")[2])
    assert (without[1], with_term[1:5]) == ("no term", ["4", "0.02", "0.5", "0"])
    usual.SETS["topics"][0](tmp_path)
    data = split(tmp_path / "data", tmp_path / "parted", validation=0.1)
    network, training = documents(None, None, data)
    model = train(usual._narrowed(network, 3), training, data, tmp_path / "run")
    term = Neighbourhood(neighbours=4, floor=0.02, weight=0.5)
    for other, printed in ((None, without), (term, with_term)):
        neighbourhoods.count_term(model.network, data, other)
        metrics = model.evaluate(data, "validation", ks=(20,))
        assert printed[6:8] == [f"{metrics['recall@20']:.4f}", f"{metrics['ndcg@20']:.4f}"]
    with pytest.raises(SystemExit, match="topics has no preset; add --default"):
        neighbourhoods.run(parser().parse_args(words.replace("--default", "").split()))
