"""ONNX: onnxruntime computes what the network computes, and a user can go from item ids to recommendations
with it alone.
"""

import json

import numpy as np
import onnx
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
from widenet.errors import OptionError
from widenet.frameworks import onnx_export
from widenet.frameworks.onnx_export import export_onnx
from widenet.predict.top_k import Rules, top_k
from widenet.runs import train
from widenet.runs.made_of import quantize
from widenet.sparse import SparseBatch


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "data")


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("seed", range(24))
def test_onnxruntime_gives_the_scores_and_the_best_units_of_random_networks(seed, data, tmp_path):
    model, fields = model_of(random_layers(seed), data, tmp_path / "run", seed), random_fields(seed)
    export_onnx(model, tmp_path / "all.onnx")
    export_onnx(model, tmp_path / "best.onnx", top_k=20)
    for name, given in (("all", fields), ("one", {field: _first(batch) for field, batch in fields.items()})):
        whole, best = session(tmp_path / "all.onnx"), session(tmp_path / "best.onnx")
        found = dict(
            zip(
                [output.name for output in whole.get_outputs()],
                whole.run(None, feed(whole, given)),
                strict=True,
            )
        )
        chosen = dict(
            zip(
                [output.name for output in best.get_outputs()], best.run(None, feed(best, given)), strict=True
            )
        )
        for output in model.network.outputs.values():
            place = output.spec.name
            wanted = scores(model, given, place)
            assert np.abs(found[place] - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max()), (name, place)
            seen = (
                given[output.spec.field]
                if output.spec.field in {layer.field for layer in model.run.network.inputs}
                else None
            )
            rules = Rules().within(model.run.fields[output.spec.field].width, output)
            expected, units = top_k(model.network, given, place, 20, seen, rules)
            known = units.numpy() >= 0
            assert (known == (chosen[f"{place}.units"] >= 0)).all()
            assert (np.isneginf(chosen[f"{place}.scores"]) == ~known).all()
            assert np.allclose(
                chosen[f"{place}.scores"][known], expected.numpy()[known], rtol=1e-4, atol=1e-5
            )
            lines = np.nonzero(known)
            assert np.allclose(
                wanted[lines[0], chosen[f"{place}.units"][known]],
                expected.numpy()[known],
                rtol=1e-4,
                atol=1e-5,
            )


def test_onnxruntime_gives_the_scores_of_convolutions_and_pooling(tmp_path):
    random = np.random.default_rng(0)
    images = dataset_from_lists(
        tmp_path / "data", [[0], [1]], width=9, dense={"profile": random.normal(size=(2, 40)).tolist()}
    )
    model = model_of(SPATIAL, images, tmp_path / "run")
    export_onnx(model, tmp_path / "model.onnx")
    given = {"profile": torch.from_numpy(random.normal(size=(7, 40)).astype(np.float32))}
    runtime = session(tmp_path / "model.onnx")
    assert np.allclose(
        runtime.run(["next"], feed(runtime, given))[0], scores(model, given, "next"), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", sequences.SETTINGS)
def test_onnxruntime_goes_along_sequences(name, tmp_path):
    data = sequences.write(tmp_path / "data")
    model = model_of(sequences.documents(name)[0]["layers"], data, tmp_path / "run")
    export_onnx(model, tmp_path / "all.onnx")
    export_onnx(model, tmp_path / "best.onnx", top_k=5)
    whole, best = session(tmp_path / "all.onnx"), session(tmp_path / "best.onnx")
    for rows in ([[0, 3, 5, 3], [], [1], [2, 3, 7, 11, 12, 0, 0], [4, 9]], [[], []], [[6]]):
        given = {"items": SparseBatch.from_lists(rows), "label": SparseBatch.from_lists([[] for _ in rows])}
        found = dict(
            zip(
                [output.name for output in whole.get_outputs()],
                whole.run(None, feed(whole, given)),
                strict=True,
            )
        )
        chosen = dict(
            zip(
                [output.name for output in best.get_outputs()], best.run(None, feed(best, given)), strict=True
            )
        )
        for output in model.network.outputs:
            wanted = scores(model, given, output)
            assert np.abs(found[output] - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())
            seen = given["items"] if model.network.outputs[output].spec.field == "items" else None
            expected, _ = top_k(
                model.network,
                given,
                output,
                5,
                seen,
                Rules().within(wanted.shape[1], model.network.outputs[output]),
            )
            assert np.allclose(chosen[f"{output}.scores"], expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_onnxruntime_normalizes_over_any_number_of_channels(n, tmp_path):
    images = dataset_from_lists(
        tmp_path / "data", [[0], [1]], width=9, dense={"profile": np.zeros((2, 40)).tolist()}
    )
    response = {
        "name": "bright",
        "kind": "pooling",
        "function": {"kind": "lrn", "alpha": 0.7, "n": n, "k": 0.5, "beta": 0.6},
    }
    model = model_of(
        [{**SPATIAL[0], "shape": [5, 4, 2]}, response, {**SPATIAL[-1], "source": "bright"}],
        images,
        tmp_path / "run",
    )
    export_onnx(model, tmp_path / "model.onnx")
    given = {"profile": torch.from_numpy(np.random.default_rng(n).normal(size=(7, 40)).astype(np.float32))}
    runtime = session(tmp_path / "model.onnx")
    assert np.allclose(
        runtime.run(["next"], feed(runtime, given))[0], scores(model, given, "next"), rtol=1e-5, atol=1e-6
    )


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
    model, fields = model_of(layers, data, tmp_path / "run"), random_fields(2)
    export_onnx(model, tmp_path / "model.onnx")
    runtime = session(tmp_path / "model.onnx")
    assert np.allclose(
        runtime.run(["next"], feed(runtime, fields))[0], scores(model, fields, "next"), rtol=1e-5, atol=1e-6
    )


def test_seen_items_are_kept_where_they_are_asked_for(data, tmp_path):
    model = model_of(random_layers(1), data, tmp_path / "run")
    export_onnx(model, tmp_path / "model.onnx", top_k=ITEMS, exclude_seen=False)
    runtime, fields = session(tmp_path / "model.onnx"), random_fields(1)
    units = dict(
        zip(
            [output.name for output in runtime.get_outputs()],
            runtime.run(None, feed(runtime, fields)),
            strict=True,
        )
    )["next.units"]
    assert (np.sort(units, axis=1) == np.arange(ITEMS)).all()


def test_large_weights_lie_beside_the_model(data, tmp_path, monkeypatch):
    model, fields = model_of(random_layers(5), data, tmp_path / "run"), random_fields(5)
    monkeypatch.setattr(onnx_export, "LARGEST_INSIDE", 100)
    files = export_onnx(model, tmp_path / "model.onnx")
    assert [path.name for path in files] == ["model.onnx.data", "model.onnx.json", "model.onnx"]
    assert (tmp_path / "model.onnx").stat().st_size < 20_000
    runtime = session(tmp_path / "model.onnx")
    assert np.allclose(
        runtime.run(["next"], feed(runtime, fields))[0], scores(model, fields, "next"), atol=1e-5, rtol=1e-5
    )


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
    export_onnx(model, tmp_path / "model.onnx")
    batch = data.sparse("items", slice(0, 5))
    given = {"items": SparseBatch(batch.indptr, batch.indices.long())}
    whole = session(tmp_path / "model.onnx")
    (found,) = whole.run(None, feed(whole, given))
    wanted = scores(model, given, "next")
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("cosine", [None, {"temperature": 0.2, "prediction_temperature": 0.3}])
@pytest.mark.parametrize("kind", ["sparse", "sequence"])
def test_onnxruntime_gives_the_scores_of_a_run_in_8_bits(cosine, kind, tmp_path):
    rows = [[0, 3, 5], [4, 1], [1], [2, 3, 7, 11, 22]]
    data = dataset_from_lists(tmp_path / "data", rows, width=23, sequence=kind == "sequence")
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 18, **({} if kind == "sparse" else {"kind": "recurrent"})},
        {"name": "out", "kind": "output", "field": "items", **({} if cosine is None else {"cosine": cosine})},
    ]
    if kind == "sequence":
        layers[2]["predict"] = "next"
    train({"layers": layers}, {"epochs": 3, "batch_size": 2}, data, tmp_path / "run")
    model = quantize(tmp_path / "run", tmp_path / "small")
    export_onnx(model, tmp_path / "all.onnx")
    export_onnx(model, tmp_path / "best.onnx", top_k=6)
    fields = {"items": SparseBatch.from_lists(rows)}
    whole, best = session(tmp_path / "all.onnx"), session(tmp_path / "best.onnx")
    (found,) = whole.run(None, feed(whole, fields))
    assert np.abs(found - scores(model, fields, "out")).max() <= 1e-6
    expected, units = top_k(model.network, fields, "out", 6, fields["items"])
    chosen = dict(
        zip([each.name for each in best.get_outputs()], best.run(None, feed(best, fields)), strict=True)
    )
    assert np.array_equal(chosen["out.units"], units.numpy())
    assert np.allclose(chosen["out.scores"], expected.numpy(), rtol=1e-5)
    stored = {tensor.name: tensor for tensor in onnx.load(tmp_path / "all.onnx").graph.initializer}
    assert sum(tensor.data_type == onnx.TensorProto.UINT8 for tensor in stored.values()) >= 2
