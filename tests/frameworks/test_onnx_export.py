"""ONNX: onnxruntime computes what the network computes, and a user can go from item ids to recommendations
with it alone.
"""

import json
from contextlib import nullcontext

import numpy as np
import onnxruntime
import pytest
import torch

from tests import sequences
from tests.described import TRAINING, described, network
from tests.interop.networks import (
    ITEMS,
    SPATIAL,
    dataset,
    feed,
    model_of,
    random_fields,
    random_layers,
    scores,
)
from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import FitError, OptionError
from widenet.frameworks import onnx_export
from widenet.frameworks.onnx_export import export_onnx
from widenet.predict.top_k import Rules, top_k
from widenet.runs import train
from widenet.runs.quantizing import quantize
from widenet.sparse import SparseBatch


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "data")


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def answers(path, fields):
    """What onnxruntime gives for a batch, by the names of the outputs."""
    runtime = session(path)
    values = runtime.run(None, feed(runtime, fields))
    return dict(zip([output.name for output in runtime.get_outputs()], values, strict=True))


def assert_same(model, fields, folder):
    """Scores of all units are those of the network."""
    export_onnx(model, folder / "all.onnx", overwrite=True)
    found = answers(folder / "all.onnx", fields)
    assert set(found) == set(model.network.outputs)
    for output, values in found.items():
        wanted = scores(model, fields, output)
        assert np.abs(values - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max()), output


def assert_same_best(model, fields, folder, k):
    """The best units are those of the network, with their scores."""
    export_onnx(model, folder / "best.onnx", top_k=k, overwrite=True)
    chosen = answers(folder / "best.onnx", fields)
    read = {layer.field for layer in model.run.network.inputs}
    for name, output in model.network.outputs.items():
        seen = fields[output.spec.field] if output.spec.field in read else None
        rules = Rules().within(model.run.fields[output.spec.field].width, output)
        expected, units = top_k(model.network, fields, name, k, seen, rules)
        found, known = chosen[f"{name}.units"], units.numpy() >= 0
        assert (known == (found >= 0)).all()
        assert np.allclose(chosen[f"{name}.scores"], expected.numpy(), rtol=1e-4, atol=1e-5)
        lines = np.nonzero(known)
        own = scores(model, fields, name)[lines[0], found[known]]
        assert np.allclose(own, expected.numpy()[known], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(24))
def test_onnxruntime_gives_the_scores_and_the_best_units_of_random_networks(seed, data, tmp_path):
    model, fields = model_of(random_layers(seed), data, tmp_path / "run", seed), random_fields(seed)
    for given in (fields, {field: _first(batch) for field, batch in fields.items()}):
        assert_same(model, given, tmp_path)
        assert_same_best(model, given, tmp_path, 20)


def images(path, layers):
    """A network over images, and some of them."""
    random = np.random.default_rng(0)
    profiles = random.normal(size=(2, 40)).tolist()
    data = dataset_from_lists(path / "data", [[0], [1]], width=9, dense={"profile": profiles})
    given = {"profile": torch.from_numpy(random.normal(size=(7, 40)).astype(np.float32))}
    return model_of(layers, data, path / "run"), given


def test_onnxruntime_gives_the_scores_of_convolutions_and_pooling(tmp_path):
    assert_same(*images(tmp_path, SPATIAL), tmp_path)


@pytest.mark.parametrize("n", [1, 3, 5, 4])
def test_onnxruntime_normalizes_over_any_odd_number_of_channels(n, tmp_path):
    function = {"kind": "lrn", "alpha": 0.7, "n": n, "k": 0.5, "beta": 0.6}
    response = {"name": "bright", "kind": "pooling", "function": function}
    layers = [{**SPATIAL[0], "shape": [5, 4, 2]}, response, {**SPATIAL[-1], "source": "bright"}]
    with mistake(FitError, place='layer "bright"') if n == 4 else nullcontext():
        assert_same(*images(tmp_path, layers), tmp_path)


@pytest.mark.parametrize("name", sequences.SETTINGS)
def test_onnxruntime_goes_along_sequences(name, tmp_path):
    data = sequences.write(tmp_path / "data")
    model = model_of(sequences.documents(name)[0]["layers"], data, tmp_path / "run")
    long = [step * step % 13 for step in range(60)]  # more than attention reads
    for rows in ([[0, 3, 5, 3], [], [1], long, [2, 3, 7, 11, 12, 0, 0], [4, 9]], [[], []], [[6]]):
        given = {"items": SparseBatch.from_lists(rows), "label": SparseBatch.from_lists([[] for _ in rows])}
        assert_same(model, given, tmp_path)
        assert_same_best(model, given, tmp_path, 5)


def _first(batch):
    """The last example of a batch alone."""
    if isinstance(batch, torch.Tensor):
        return batch[-1:]
    start = batch.indptr[-2]
    values = None if batch.values is None else batch.values[start:]
    return SparseBatch(batch.indptr[-2:] - start, batch.indices[start:], values)


@pytest.mark.parametrize("entry", [{}, {"scale": "unit"}, {"values": "ignore", "scale": "rsqrt"}], ids=str)
def test_onnxruntime_gives_the_scores_of_an_output_on_a_sparse_input(entry, data, tmp_path):
    layers = [
        {"name": "in", "kind": "input", "field": "items", **entry},
        {"name": "next", "kind": "output", "field": "tags"},
    ]
    assert_same(model_of(layers, data, tmp_path / "run"), random_fields(2), tmp_path)


def test_seen_items_are_kept_where_they_are_asked_for(data, tmp_path):
    model = model_of(random_layers(1), data, tmp_path / "run")
    export_onnx(model, tmp_path / "model.onnx", top_k=ITEMS, exclude_seen=False)
    units = answers(tmp_path / "model.onnx", random_fields(1))["next.units"]
    assert (np.sort(units, axis=1) == np.arange(ITEMS)).all()


def test_large_weights_lie_beside_the_model(data, tmp_path, monkeypatch):
    model, fields = model_of(random_layers(5), data, tmp_path / "run"), random_fields(5)
    monkeypatch.setattr(onnx_export, "LARGEST_INSIDE", 100)
    files = export_onnx(model, tmp_path / "model.onnx")
    assert [path.name for path in files] == ["model.onnx.data", "model.onnx.json", "model.onnx"]
    assert (tmp_path / "model.onnx").stat().st_size < 20_000
    found = answers(tmp_path / "model.onnx", fields)["next"]
    assert np.allclose(found, scores(model, fields, "next"), atol=1e-5, rtol=1e-5)


def test_the_names_of_items_lie_beside_the_model(data, tmp_path):
    export_onnx(model_of(random_layers(1), data, tmp_path / "run"), tmp_path / "model.onnx")
    names = json.loads((tmp_path / "model.onnx.json").read_text("utf-8"))
    vocabulary = data.vocabulary("items")
    assert names["items"] == {"ids": vocabulary.ids(range(ITEMS)), "titles": vocabulary.titles(range(ITEMS))}


@pytest.mark.parametrize(
    ("name", "more", "fact"),
    [
        ("model.pb", {}, {"option": "out"}),
        ("there.onnx/model.onnx", {}, {"place": "model.onnx"}),
        ("there.onnx", {}, {"place": "there.onnx"}),
        ("model.onnx", {"top_k": 0}, {"option": "k"}),
    ],
)
def test_a_mistake_says_where_it_is(name, more, fact, data, tmp_path):
    (tmp_path / "there.onnx").touch()
    with mistake(OptionError, **fact):
        export_onnx(model_of(random_layers(1), data, tmp_path / "run"), tmp_path / name, **more)


def test_only_a_model_of_widenet_is_replaced_with_the_files_beside_it(data, tmp_path, monkeypatch):
    model, out = model_of(random_layers(1), data, tmp_path / "run"), tmp_path / "new" / "out" / "model.onnx"
    with monkeypatch.context() as patch:
        patch.setattr(onnx_export, "LARGEST_INSIDE", 0)
        large = export_onnx(model, out)
    small = export_onnx(model, out, top_k=3, overwrite=True)
    assert len(small) == len(large) - 1
    assert sorted(out.parent.iterdir()) == sorted(small)
    (out.parent / "model.onnx.data").write_text("mine")  # which no model refers to
    export_onnx(model, out, overwrite=True)
    assert (out.parent / "model.onnx.data").read_text() == "mine"
    for name in ("model.onnx.json", "model.onnx"):
        before = (out.parent / name).read_bytes()
        (out.parent / name).write_text("mine")
        with mistake(OptionError, place=name):
            export_onnx(model, out, overwrite=True)
        (out.parent / name).write_bytes(before)


def test_onnxruntime_recommends_described_items_without_their_attributes(tmp_path):
    data = described(tmp_path / "data")
    model = train(network(), {**TRAINING, "epochs": 1}, data, tmp_path / "run")
    batch = data.sparse("items", slice(0, 5))
    assert_same(model, {"items": SparseBatch(batch.indptr, batch.indices.long())}, tmp_path)


def test_a_run_in_8_bits_is_refused(tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 3, 5], [4, 1]], width=23)
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 18},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    train({"layers": layers}, {"epochs": 1}, data, tmp_path / "run")
    model = quantize(tmp_path / "run", tmp_path / "small")
    with mistake(FitError, place="small"):
        export_onnx(model, tmp_path / "small.onnx")
    assert not (tmp_path / "small.onnx").exists()
