"""Export and import from the command line, and the page about them: what it shows runs."""

from pathlib import Path

import onnxruntime
import pytest

from tests.commands import blocks
from tests.interop.networks import dataset, model_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "interchange.md"
LAYERS = [
    {"name": "history", "kind": "input", "field": "items", "values": "ignore"},
    {"name": "taste", "units": 6, "activation": "tanh"},
    {"name": "next", "kind": "output", "field": "items", "values": "ignore"},
]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return model_of(LAYERS, dataset(tmp_path / "data"), tmp_path / "run")


@pytest.mark.usefixtures("model")
def test_export_writes_a_model_and_its_names(widenet):
    ended = widenet("export", "run", "--out", "all.onnx", "--format", "onnx")
    assert (ended.status, ended.err) == (0, "")
    assert [line.split(":")[0] for line in ended.out.splitlines()] == ["all.onnx.json", "all.onnx"]
    session = onnxruntime.InferenceSession("all.onnx")
    assert [output.name for output in session.get_outputs()] == ["next"]


@pytest.mark.usefixtures("model")
def test_an_unknown_format_is_one_sentence(widenet):
    ended = widenet("export", "run", "--out", "all.onnx", "--format", "caffe")
    assert (ended.status, ended.err) == (2, 'widenet: format must be "onnx"; got "caffe".\n')


def test_the_page_goes_from_ids_to_recommendations(widenet, model, capsys):
    assert widenet("export", "run", "--out", "best.onnx", "--top-k", 5).status == 0
    example = blocks(PAGE.read_text("utf-8"), "python")[0]
    exec(compile(example, "interchange.md", "exec"), {})
    found = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    wanted = [["0", row.item] for row in model.recommend(["0", "4"], 5)] + [["1", row.item] for row in model.recommend(["1"], 5)]
    assert found == wanted
