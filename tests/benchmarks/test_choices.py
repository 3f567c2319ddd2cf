"""A row of a changed preset against a training of these very documents."""

import json

import pytest

from benchmarks import choices, latest
from benchmarks.__main__ import parser
from benchmarks.places import presets
from tests.benchmarks.toys import cells_of
from widenet import train


def test_a_change_is_a_training_with_it(ordered, tmp_path, capsys):
    words = f"choices gowalla --ordered {ordered} --users 50 --units 3 --changes epochs=1"
    choices.run(parser().parse_args([*words.split(), "epochs=1,temperature=0.2,bias=false,targets=share"]))
    printed = cells_of(capsys.readouterr().out.partition("of each user's items")[2])
    assert [row[0] for row in printed] == [
        "none",
        "epochs 1",
        'epochs 1, temperature 0.2, bias false, targets "share"',
    ]
    network, training = (json.loads(path.read_text()) for path in presets("gowalla")["neighbours"])
    network["layers"][1]["units"] = 3
    network["layers"][2] |= {
        "bias": False,
        "cosine": {"temperature": 0.2, "prediction_temperature": 0.24},
        "loss": {"kind": "cross_entropy", "targets": "share"},
    }
    dataset = latest.cut_latest(ordered, 0.2, tmp_path)
    metrics = train(network, {**training, "epochs": 1}, dataset, tmp_path / "run").evaluate(dataset, ks=(20,))
    assert printed[-1][1:3] == [f"{metrics['recall@20']:.4f}", f"{metrics['ndcg@20']:.4f}"]


def test_a_setting_that_no_preset_has_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["choices", "gowalla", "--changes", "unit=4"])
    assert "'unit' is not one of denoise, popularity_damping, units" in capsys.readouterr().err
