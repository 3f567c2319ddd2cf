"""ONNX models read: they score as onnxruntime says, and what cannot be read is named."""

import contextlib
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.interop.networks import SPATIAL, dataset, model_of, random_layers
from tests.interop.outcomes import scored
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, WidenetError
from widenet.frameworks.onnx_export import export_onnx
from widenet.frameworks.onnx_graph import names_path
from widenet.frameworks.onnx_import import read_onnx
from widenet.interop.import_network import import_network

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(7, 5)).astype(np.float32)


def numbers(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


class Written:
    """A model under construction: nodes, constants, and the inputs x [E, 5] and, where wanted, ids [E, 3]."""

    def __init__(self, inputs=("x",)):
        self.nodes, self.constants = [], []
        kinds = {"x": (TensorProto.FLOAT, ["E", 5]), "ids": (TensorProto.INT64, ["E", 3])}
        self.inputs = [helper.make_tensor_value_info(name, *kinds[name]) for name in inputs]

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind, *inputs, **attributes):
        inputs = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(
            helper.make_node(
                kind, inputs, [f"v{len(self.nodes)}"], name=f"/{kind.lower()}/{len(self.nodes)}", **attributes
            )
        )
        return self.nodes[-1].output[0]

    def save(self, path, **outputs):
        self.nodes += [helper.make_node("Identity", [value], [name]) for name, value in outputs.items()]
        gives = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["E", None]) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, gives, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def perceptron(w):
    hidden = w.op("Relu", w.op("Gemm", "x", numbers(8, 5), numbers(8), transB=1))
    return {
        "probabilities": w.op("Softmax", w.op("Gemm", hidden, numbers(8, 3), numbers(3), alpha=0.5, beta=2.0))
    }


def bare_products(w):
    hidden = w.op("Tanh", w.op("Add", w.op("MatMul", "x", numbers(5, 4)), numbers(4)))
    return {
        "y": w.op(
            "Sigmoid", w.op("Add", numbers(1, 2), w.op("MatMul", w.op("Dropout", hidden), numbers(4, 2)))
        )
    }


def branches(w):
    first = w.op("Elu", w.op("Gemm", "x", numbers(5, 4)), alpha=0.7)
    second = w.op("LeakyRelu", w.op("Gemm", "x", numbers(5, 6)), alpha=0.3)
    both = w.op("Concat", first, second, axis=1)
    total = w.op("Add", w.op("Gemm", both, numbers(10, 3)), w.op("Gemm", first, numbers(4, 3), numbers(3)))
    return {"a": w.op("Selu", total), "b": w.op("Gemm", w.op("Flatten", both), numbers(10, 2))}


def normalised(w):
    x = w.op("Div", w.op("Sub", "x", numbers(5)), np.abs(numbers(5)) + 1)
    before = w.op(
        "BatchNormalization",
        w.op("Gemm", x, numbers(5, 4)),
        numbers(4),
        numbers(4),
        numbers(4),
        np.abs(numbers(4)),
        epsilon=0.01,
    )
    after = w.op(
        "BatchNormalization", w.op("Softplus", before), numbers(4), numbers(4), numbers(4), np.abs(numbers(4))
    )
    return {"y": w.op("Mul", w.op("Gemm", after, numbers(4, 3), numbers(3)), numbers(3))}


def gates(w):
    product = w.op("Gemm", "x", numbers(5, 4))
    gated = w.op("Mul", product, w.op("Sigmoid", product))
    gaussian = w.op("Gelu", w.op("Gemm", w.op("Reshape", gated, np.array([-1, 4])), numbers(4, 4)))
    turned = w.op("Transpose", numbers(2, 4), perm=[1, 0])
    return {"y": w.op("Softsign", w.op("MatMul", gaussian, turned))}


def used_under_two_names(w):
    product = w.op("Gemm", "x", numbers(5, 4))
    changed = w.op("Relu", w.op("Dropout", w.op("Identity", product)))
    return {
        "changed": changed,
        "again": product,
        "product": product,
        "y": w.op("Gemm", product, numbers(4, 2)),
    }


def residual(w):
    hidden = w.op("Relu", w.op("Gemm", "x", numbers(5, 5)))
    more = w.op("Mul", w.op("Tanh", w.op("Gemm", hidden, numbers(5, 5))), numbers(5))
    return {"y": w.op("Gemm", w.op("Add", w.op("Add", hidden, "x"), more), numbers(5, 3))}


@pytest.mark.parametrize(
    "build", [perceptron, bare_products, branches, normalised, gates, used_under_two_names, residual]
)
def test_an_imported_model_scores_as_onnxruntime_does(build, tmp_path):
    written = Written()
    path = written.save(tmp_path / "model.onnx", **build(written))
    session = onnxruntime.InferenceSession(path)
    wanted = dict(
        zip([output.name for output in session.get_outputs()], session.run(None, {"x": X}), strict=True)
    )
    found = scored(import_network(path, tmp_path / "run"), x=X)
    assert found.keys() == wanted.keys()
    for name, scores in found.items():
        assert np.allclose(scores, wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ["ReduceSum", "ReduceMean"])
def test_a_sum_of_gathered_rows_is_a_sparse_input(reduce, tmp_path):
    written = Written(("x", "ids"))
    rows = written.op(reduce, written.op("Gather", numbers(9, 4), "ids"), np.array([1]), keepdims=0)
    dense = written.op("Gemm", "x", numbers(5, 4))
    if reduce == "ReduceSum":
        hidden = written.op("Relu", written.op("Add", dense, rows))
    else:
        hidden = written.op("Concat", rows, written.op("Relu", dense), axis=1)
    path = written.save(
        tmp_path / "model.onnx", y=written.op("Gemm", hidden, numbers(4 if reduce == "ReduceSum" else 8, 2))
    )
    ids = RANDOM.integers(0, 9, (7, 3))
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": X, "ids": ids})
    model = import_network(path, tmp_path / "run")
    assert model.run.fields["ids"].kind == "sparse"
    assert np.allclose(scored(model, x=X, ids=ids.tolist())["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_what_widenet_wrote_comes_back_to_the_bit(seed, tmp_path):
    model = model_of(random_layers(seed), dataset(tmp_path / "data"), tmp_path / "run", seed)
    export_onnx(model, tmp_path / "model.onnx")
    again = import_network(tmp_path / "model.onnx", tmp_path / "again")
    assert again.fingerprint() == model.fingerprint()
    assert again.run.network == model.run.network


def test_convolutions_that_widenet_wrote_come_back_to_the_bit(tmp_path):
    images = dataset_from_lists(
        tmp_path / "data", [[0], [1]], width=9, dense={"profile": numbers(2, 40).tolist()}
    )
    model = model_of(SPATIAL, images, tmp_path / "run")
    export_onnx(model, tmp_path / "model.onnx")
    assert import_network(tmp_path / "model.onnx", tmp_path / "again").fingerprint() == model.fingerprint()


def test_constants_of_every_form_are_read_and_nodes_without_inputs_are_named(tmp_path):
    written = Written()
    constant = written.op("Constant", value_floats=[0.5, 2.0, -1.0, 3.0])
    path = written.save(
        tmp_path / "model.onnx", y=written.op("Add", written.op("Gemm", "x", numbers(5, 4)), constant)
    )
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    assert np.allclose(scored(import_network(path, tmp_path / "run"), x=X)["y"], wanted, rtol=1e-5, atol=1e-6)
    written = Written()
    chance = written.op("RandomNormal", shape=[1, 4])
    path = written.save(
        tmp_path / "other.onnx", y=written.op("Add", written.op("Gemm", "x", numbers(5, 4)), chance)
    )
    with pytest.raises(DataError, match=r'a layer has no counterpart: "/randomnormal/0" \(RandomNormal\)\.'):
        import_network(path, tmp_path / "again")


def test_everything_that_has_no_counterpart_is_named(tmp_path):
    written = Written()
    hidden = written.op("Gemm", "x", numbers(5, 4))
    odd = written.op("Clip", written.op("Cos", hidden))
    alone = written.op("Relu", "x")
    path = written.save(
        tmp_path / "model.onnx",
        y=written.op("Gemm", odd, numbers(4, 2)),
        z=written.op("Gemm", alone, numbers(5, 2)),
    )
    with pytest.raises(DataError) as raised:
        import_network(path, tmp_path / "run")
    said = str(raised.value)
    assert "3 layers have no counterpart" in said
    assert '"/cos/1" (Cos), "/clip/2" (Clip with bounds other than a minimum of 0)' in said
    assert '"/relu/3" (the activation relu without a layer with weights before it)' in said
    assert not (tmp_path / "run").exists()


def turned(w, shape, window):
    """Pooling over what was put into other axes."""
    first = w.op("Relu", w.op("Conv", "image", numbers(4, 2, 1, 1)))
    return w.op(
        "MaxPool", w.op("Reshape", w.op("Flatten", first), np.array([-1, *shape])), kernel_shape=window
    )


def learning(w):
    """A batch normalization by the batch's own statistics."""
    value = w.op("BatchNormalization", "x", *[np.abs(numbers(5)) for _ in range(4)], training_mode=1)
    w.nodes[-1].output.extend(["mean", "variance"])
    return value


@pytest.mark.parametrize(
    "build",
    [lambda w: w.op("Gemm", "x", numbers(5, 4), numbers(4, 1)), learning],
    ids=["bias", "normalization"],
)
def test_a_bias_of_examples_and_a_normalization_by_the_batch_are_refused(build, tmp_path):
    written = Written()
    path = written.save(tmp_path / "model.onnx", y=build(written))
    with pytest.raises(DataError, match=r"\((Gemm of another form|BatchNormalization)\)"):
        import_network(path, tmp_path / "run")


@pytest.mark.parametrize("keep", [0, 10, 150])
def test_a_truncated_file_is_one_sentence(keep, tmp_path):
    written = Written()
    path = written.save(tmp_path / "model.onnx", **perceptron(written))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"model\.onnx is no whole ONNX model: "):
        import_network(path, tmp_path / "run")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    written = Written()
    path = written.save(
        tmp_path / "model.onnx", y=written.op("Gemm", "x", np.full((5, 2), np.nan, np.float32))
    )
    with pytest.raises(DataError, match=r'the weights "y" must be finite numbers'):
        import_network(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def image(w):
    first = w.op("Conv", "image", numbers(4, 2, 3, 2), numbers(4), strides=[1, 2], pads=[1, 0, 1, 0])
    normal = w.op("BatchNormalization", first, numbers(4), numbers(4), numbers(4), np.abs(numbers(4)))
    active = w.op("LRN", w.op("Relu", normal), size=3, alpha=0.5, bias=1.5)
    second = w.op(
        "Add", w.op("Conv", active, numbers(4, 2, 2, 2), auto_pad="SAME_UPPER", group=2), numbers(4, 1, 1)
    )
    residual = w.op("Tanh", w.op("Add", active, second))
    both = w.op(
        "Concat",
        w.op("MaxPool", residual, kernel_shape=[2, 2], strides=[1, 1]),
        w.op("MaxPool", active, kernel_shape=[2, 2]),
        axis=1,
    )
    third = w.op("Selu", w.op("Conv", both, numbers(3, 8, 2, 1), numbers(3)))
    means = w.op(
        "Flatten", w.op("AveragePool", third, kernel_shape=[3, 1], pads=[1, 0, 1, 0], strides=[2, 1])
    )
    last = w.op("Flatten", w.op("GlobalAveragePool", third))
    return {"y": w.op("Gemm", w.op("Concat", means, last, axis=1), numbers(12 + 3, 3), numbers(3))}


def along(w):
    """A recurrent layer along the features of ids."""
    w.inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["E", 3])]
    rows = w.op("Transpose", w.op("Gather", numbers(9, 5), "ids"), perm=[1, 0, 2])
    first = w.op("Expand", np.zeros((1, 1, 1), np.float32), np.array([1, 1, 4]))
    states = w.op(
        "GRU",
        rows,
        numbers(1, 12, 5),
        numbers(1, 12, 4),
        numbers(1, 24),
        "",
        first,
        hidden_size=4,
        linear_before_reset=1,
    )
    end = w.op("Squeeze", w.op("Gather", states, np.array(-1)), np.array([0]))
    return {"y": w.op("Gemm", end, numbers(4, 2))}


@pytest.mark.parametrize("build", [perceptron, branches, normalised, gates, along])
def test_whatever_became_of_a_file_is_read_or_refused_in_one_sentence(build, tmp_path):
    written, random = Written(), np.random.default_rng(1)
    path = written.save(tmp_path / "model.onnx", **build(written))
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(300):
        damaged = whole.copy()
        damaged[random.integers(0, len(whole), random.integers(1, 4))] = random.integers(0, 256)
        path.write_bytes(damaged.tobytes())
        with contextlib.suppress(WidenetError):
            read_onnx(path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link"])
def test_weights_in_another_folder_are_refused(location, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "secret").write_bytes(bytes(40))
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    written = Written()
    path = written.save(tmp_path / "models" / "model.onnx", y=written.op("Gemm", "x", numbers(5, 2)))
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": "40"}.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DataError, match=r"model\.onnx is no whole ONNX model: "):
        import_network(path, tmp_path / "run")


@pytest.mark.parametrize("ids", [5, "abcdefg", [["a"]] * 7, None, {"a": 1}])
def test_names_that_are_no_lists_of_texts_are_one_sentence(ids, tmp_path):
    data = dataset(tmp_path / "data")
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    path = tmp_path / "model.onnx"
    export_onnx(model_of(layers, data, tmp_path / "run"), path)
    names_path(path).write_text(json.dumps({"items": {"ids": ids, "titles": ids}}))
    with pytest.raises(
        DataError,
        match=r'model.onnx.json: field "items" must have [0-9]+ ids, all different, and as many titles',
    ):
        import_network(path, tmp_path / "again")


def test_numbers_that_become_whole_are_refused(tmp_path):
    written = Written()
    whole = written.op("Cast", written.op("Gemm", "x", numbers(5, 4)), to=TensorProto.INT32)
    path = written.save(tmp_path / "model.onnx", y=written.op("Cast", whole, to=TensorProto.FLOAT))
    with pytest.raises(DataError, match=r"\(Cast\)"):
        import_network(path, tmp_path / "run")
