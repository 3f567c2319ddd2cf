"""Export and import from the command line, and the page about them: what it shows runs."""

from pathlib import Path

import pytest

from tests.commands import blocks
from tests.dsstne.models import connected, fully, write_model
from tests.interop.networks import dataset, model_of
from widenet.runs import Model

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


def test_the_page_goes_from_ids_to_recommendations(widenet, model, capsys):
    assert widenet("export", "run", "--out", "best.onnx", "--top-k", 5).status == 0
    example = blocks(PAGE.read_text("utf-8"), "python")[0]
    exec(compile(example, "interchange.md", "exec"), {})
    found = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    wanted = [["0", row.item] for row in model.recommend(["0", "4"], 5)] + [
        ["1", row.item] for row in model.recommend(["1"], 5)
    ]
    assert found == wanted


def written(path):
    layers = [
        fully("Input", "Input", 9, data="given", attributes=1),
        fully("Hidden", "Hidden", 4, ["Input"]),
        fully("Output", "Output", 9, ["Hidden"], data="asked"),
    ]
    write_model(path, layers, connected(0, layers))


def test_an_import_replaces_an_earlier_run_if_asked_and_a_failed_one_leaves_it(
    widenet, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    written(Path("network.nc"))
    assert widenet("import", "network.nc", "--out", "imported", "--field", "given=books").status == 0
    assert widenet("import", "network.nc", "--out", "imported").status == 2
    assert sorted(Model.load("imported").run.fields) == ["asked", "books"]
    Path("damaged.nc").write_bytes(Path("network.nc").read_bytes()[:2000])
    assert widenet("import", "damaged.nc", "--out", "imported", "--overwrite").status == 2
    wrong = "--field", "gibven=books", "--overwrite"
    assert widenet("import", "network.nc", "--out", "imported", *wrong).status == 2
    assert sorted(Model.load("imported").run.fields) == ["asked", "books"]
    assert widenet("import", "network.nc", "--out", "imported", "--overwrite").status == 0
    assert sorted(Model.load("imported").run.fields) == ["asked", "given"]
