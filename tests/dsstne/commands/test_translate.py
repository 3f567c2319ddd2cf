"""`widenet dsstne translate`."""

import json

from tests.dsstne.test_spec import config, hidden
from widenet.spec.network import NetworkSpec


def test_it_prints_the_document_and_tells_what_belongs_to_training(widenet, tmp_path):
    (tmp_path / "config.json").write_text(
        "// a comment\n" + json.dumps(config(hidden(Activation="SoftPlus"), Decay=0.5)), "utf-8"
    )
    ended = widenet("dsstne", "translate", str(tmp_path / "config.json"))
    assert ended.status == 0
    assert NetworkSpec.parse(ended.out).layers[1].activation.kind == "linear"
    assert 'For training.json: {"shuffle": true, "schedule": {"kind": "inverse", "decay": 0.5}}' in ended.err
