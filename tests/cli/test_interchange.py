"""Export and import from the command line, and the page about them: what it shows runs."""

import json
from pathlib import Path

import onnxruntime
import pytest

from tests.commands import blocks
from tests.dsstne.models import connected, fully, write_model
from tests.interop.networks import dataset, model_of
from widenet.frameworks.onnx_export import export_onnx
from widenet.runs import Model

PAGE = Path(__file__).parent.parent.parent / "docs" / "interchange.md"
SUFFIXES = ".caffemodel, .h5, .hdf5, .keras, .nc, .onnx, .prototxt"
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


@pytest.mark.parametrize(("k", "given", "said"), [(23, 23, ""), (24, 23, "--top-k asks for 24 units; {}.\n")])
def test_more_units_than_there_are_are_all_of_them(k, given, said, model, widenet):
    ended = widenet("export", "run", "--out", "best.onnx", "--top-k", k, "--include-seen")
    assert (ended.status, ended.err) == (0, said.format('"next" gives 23, which are all'))
    session = onnxruntime.InferenceSession("best.onnx")
    assert [output.shape[1] for output in session.get_outputs()] == [given, given]
    with pytest.warns(UserWarning, match="^`top_k` asks for 24 units;") as caught:
        export_onnx(model, "again.onnx", top_k=24)
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("model")
def test_an_unknown_format_is_one_sentence(widenet):
    ended = widenet("export", "run", "--out", "all.onnx", "--format", "caffe")
    assert (ended.status, ended.err) == (2, 'widenet: format must be "onnx"; got "caffe".\n')


def test_the_page_goes_from_ids_to_recommendations(widenet, model, capsys):
    assert widenet("export", "run", "--out", "best.onnx", "--top-k", 5).status == 0
    example = blocks(PAGE.read_text("utf-8"), "python")[0]
    exec(compile(example, "interchange.md", "exec"), {})
    found = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    wanted = [["0", row.item] for row in model.recommend(["0", "4"], 5)] + [
        ["1", row.item] for row in model.recommend(["1"], 5)
    ]
    assert found == wanted


@pytest.mark.usefixtures("model")
def test_import_makes_a_run_that_recommends_and_trains_on(widenet, tmp_path):
    assert widenet("export", "run", "--out", "all.onnx").status == 0
    ended = widenet("import", "all.onnx", "--out", "imported", "--data", "data")
    assert ended.status == 0
    assert ended.out == 'imported: history 23, taste 6, next 23\n  field "items": sparse, 23\n'
    first, again = (
        widenet("recommend", run, "--items", "0", "--json", "-k", 3).out for run in ("run", "imported")
    )
    assert first == again
    (tmp_path / "training.json").write_text('{"epochs": 1, "shards": 3}')
    command = [
        "train",
        "imported/network.json",
        "training.json",
        "--data",
        "data",
        "--out",
        "further",
        "--from",
        "imported",
        "--quiet",
    ]
    assert widenet(*command).status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.onnx"], "widenet: nowhere.onnx: no such file. Check the path.\n"),
        (
            ["model.txt"],
            (
                f"widenet: model.txt: must be one of {SUFFIXES}; neither its first bytes nor its suffix are"
                " of these. Convert it to ONNX.\n"
            ),
        ),
        (
            ["model.onnx", "--field", "items"],
            "widenet: --field must be NAME=FIELD, each name once; got 'items'.\n",
        ),
        (
            ["model.onnx", "--weights", "w.caffemodel"],
            "widenet: weights belong to a .prototxt; got model.onnx, which holds its own. Leave them out.\n",
        ),
    ],
)
def test_a_mistake_in_import_is_one_sentence(words, message, widenet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("model.txt", "model.onnx"):
        (tmp_path / name).touch()
    ended = widenet("import", *words, "--out", "run")
    assert (ended.status, ended.err) == (2, message)


@pytest.mark.usefixtures("model")
def test_import_reads_what_dsstne_trained(widenet, tmp_path):
    layers = [
        fully("Input", "Input", 9, data="given", attributes=1),
        fully("Hidden", "Hidden", 4, ["Input"]),
        fully("Output", "Output", 9, ["Hidden"], data="asked"),
    ]
    write_model(tmp_path / "network.nc", layers, connected(0, layers))
    ended = widenet("import", "network.nc", "--out", "imported", "--field", "given=items")
    assert (ended.status, ended.out.splitlines()[0]) == (0, "imported: Input 9, Hidden 4, Output 9")
    assert '  field "items": sparse, 9' in ended.out.splitlines()


@pytest.mark.usefixtures("model")
def test_what_widenet_exported_comes_back_with_its_names(widenet):
    assert widenet("export", "run", "--out", "all.onnx").status == 0
    ended = widenet("import", "all.onnx", "--out", "imported", "--field", "items=books")
    assert (ended.status, ended.err) == (0, "all.onnx: an ONNX model.\n")
    before, after = Model.load("run").run.vocabulary("items"), Model.load("imported").run.vocabulary("books")
    assert (after.ids(range(23)), after.titles(range(23))) == (
        before.ids(range(23)),
        before.titles(range(23)),
    )
    names = json.loads(Path("all.onnx.json").read_text("utf-8"))
    names["items"]["ids"][1] = names["items"]["ids"][0]
    for wrong, rule in (
        (names, "must have 23 ids, all different"),
        ({"items": {"ids": 3}}, "all.onnx.json is no whole file of names"),
    ):
        Path("all.onnx.json").write_text(json.dumps(wrong), "utf-8")
        ended = widenet("import", "all.onnx", "--out", "other")
        assert (ended.status, rule in ended.err) == (2, True)
    Path("all.onnx.json").unlink()
    assert widenet("import", "all.onnx", "--out", "unnamed").status == 0
    assert Model.load("unnamed").run.vocabulary("items").titles([1]) == ["1"]


@pytest.mark.usefixtures("model")
def test_fields_take_other_names(widenet):
    assert widenet("export", "run", "--out", "all.onnx").status == 0
    ended = widenet("import", "all.onnx", "--out", "imported", "--field", "items=books")
    assert ended.out.splitlines()[1] == '  field "books": sparse, 23'
    ended = widenet("import", "all.onnx", "--out", "other", "--field", "itens=books")
    assert ended.err.endswith(
        'widenet: all.onnx has no field "itens" to call otherwise. Did you mean "items"?\n'
    )
    assert not Path("other").exists()


@pytest.mark.usefixtures("model")
def test_an_import_replaces_an_earlier_run_if_asked_and_a_failed_one_leaves_it(widenet):
    assert widenet("export", "run", "--out", "all.onnx").status == 0
    assert widenet("import", "all.onnx", "--out", "imported").status == 0
    ended = widenet("import", "all.onnx", "--out", "imported", "--field", "items=books")
    assert (ended.status, ended.err.startswith("widenet: imported exists already. ")) == (2, True)
    renamed = "--field", "items=books", "--overwrite"
    assert widenet("import", "all.onnx", "--out", "imported", *renamed).status == 0
    assert [*Model.load("imported").run.fields] == ["books"]
    Path("all.onnx.json").write_text(json.dumps({"items": {"ids": 3}}), "utf-8")
    assert widenet("import", "all.onnx", "--out", "imported", "--overwrite").status == 2
    assert [*Model.load("imported").run.fields] == ["books"]
    layers = [
        fully("Input", "Input", 9, data="given", attributes=1),
        fully("Output", "Output", 9, ["Input"], data="asked"),
    ]
    write_model(Path("network.nc"), layers, connected(0, layers))
    assert widenet("import", "network.nc", "--out", "imported", "--overwrite").status == 0
    assert sorted(Model.load("imported").run.fields) == ["asked", "given"]


@pytest.mark.usefixtures("model")
def test_an_imported_network_takes_values_since_nobody_knows_whether_it_was_trained_with_them(widenet):
    layers = [
        fully("Input", "Input", 9, data="given", attributes=1),
        fully("Output", "Output", 9, ["Input"], data="given"),
    ]
    write_model(Path("network.nc"), layers, connected(0, layers))
    assert widenet("import", "network.nc", "--out", "imported").status == 0
    imported = Model.load("imported")
    plain, other = imported.recommend(["1", "2"]), imported.recommend(["1", "2"], values=[0.2, 5.0])
    assert [row.score for row in plain] != [row.score for row in other]
