"""A row of changed default documents along sequences against a training of these very documents."""

from benchmarks import sequences
from benchmarks.__main__ import parser
from benchmarks.usual import default_documents
from tests.benchmarks.toys import HISTORIES, cells_of
from widenet import ingest, split, train
from widenet.baselines.measure import measured

ATTENTION = {"name": "state", "kind": "attention"}


def test_a_changed_setting_is_a_training_with_it(tmp_path, monkeypatch, capsys):
    rows = [[str(item) for item in history] for history in HISTORIES]
    monkeypatch.setitem(sequences._SETS, "walks", lambda: rows)
    changes = ['state={"name":"state","kind":"attention"},units=6', "weight=0.1"]
    words = ["sequences", "--sets", "walks", "--epochs", "2", "--changes", *changes]
    sequences.run(parser().parse_args(words))
    printed = cells_of(capsys.readouterr().out)
    shown = 'state {"name": "state", "kind": "attention"}, units 6'
    baseline, *printed = printed
    assert [row[:2] for row in printed] == [["walks", each] for each in ("none", shown, "weight 0.1")]
    lines = [f"{user} {' '.join(row)}\n" for user, row in enumerate(rows)]
    (tmp_path / "rows.txt").write_text("".join(lines))
    ingest([tmp_path / "rows.txt"], tmp_path / "whole", format="adjacency", sequence=True)
    dataset = split(tmp_path / "whole", tmp_path / "data", validation_last=1)
    network, training = default_documents(dataset)
    assert (network["layers"][1]["units"], network["layers"][3]["neighbourhood"]["weight"]) == (128, 1.2)
    network["layers"][1]["units"], network["layers"][2] = 6, ATTENTION
    model = train(network, {**training, "epochs": 2}, dataset, tmp_path / "run")
    found = model.evaluate(dataset, "validation", ks=(20,))
    assert printed[1][2:4] == [f"{found[name]:.4f}" for name in ("recall@20", "ndcg@20")]
    assert printed[0][2:4] != printed[1][2:4]
    of_successors = measured(dataset, "items", "validation", [20])["successors"]
    assert baseline[1] == "baseline successors"
    assert baseline[2:4] == [f"{of_successors[name]:.4f}" for name in ("recall@20", "ndcg@20")]
