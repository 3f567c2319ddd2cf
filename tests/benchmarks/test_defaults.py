"""A row of changed default documents against a training of these very documents."""

import pytest

from benchmarks import defaults, usual
from benchmarks.__main__ import parser
from tests.benchmarks.toys import HISTORIES, cells_of
from widenet import split, train
from widenet.runs.documents import documents


def test_a_changed_setting_is_a_training_with_it(tmp_path, monkeypatch, capsys):
    rows = [(user, item) for user, history in enumerate(HISTORIES) for item in history]
    monkeypatch.setitem(defaults._SETS, "catalogue", lambda folder: usual.hold_out(rows, folder))
    words = "defaults --sets catalogue --units 4 --changes units=4 units=6,epochs=2 learning_rate=0.5"
    defaults.run(parser().parse_args(words.split()))
    printed = cells_of(capsys.readouterr().out)
    assert [row[:5] for row in printed] == [
        ["catalogue", "4", "20", "0.02", "0.375"],
        ["catalogue", "6", "2", "0.02", "0.375"],
        ["catalogue", "4", "20", "0.5", "0.375"],
    ]
    usual.hold_out(rows, tmp_path)
    dataset = split(tmp_path / "data", tmp_path / "parted", validation=0.1)
    network, training = (spec.model_dump(mode="json") for spec in documents(None, None, dataset))
    assert network["layers"][2].pop("neighbourhood")
    network["layers"][1] |= {"units": 6, "initializer": {"kind": "gaussian", "deviation": 0.367}}
    model = train(network, {**training, "epochs": 2}, dataset, tmp_path / "run")
    assert printed[1][5] == f"{model.evaluate(dataset, 'validation', ks=(20,))['ndcg@20']:.4f}"


def test_a_setting_that_no_default_document_has_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["defaults", "--changes", "unit=4"])
    assert "'unit' is not one of units, epochs, learning_rate, popularity_damping" in capsys.readouterr().err
