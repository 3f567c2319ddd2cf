"""Local response normalization as PyTorch exports it scores as onnxruntime computes it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.interop.outcomes import scored
from widenet.errors import DataError
from widenet.interop.import_network import import_network

IMAGES = np.random.default_rng(1).normal(size=(3, 4, 5, 5)).astype(np.float32)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).uniform(-0.9, 0.9, shape).astype(np.float32)


def written(path, nodes, **constants):
    """A convolution, what makes "bright" of its "edges" [E, 6, 3, 3], and a product."""
    held = {"filters": numbers(6, 4, 3, 3), "scores": numbers(54, 2), "flat": np.array([-1, 54]), **constants}
    conv = helper.make_node("Conv", ["image", "filters"], ["edges"])
    last = [
        helper.make_node("Reshape", ["bright", "flat"], ["row"]),
        helper.make_node("MatMul", ["row", "scores"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 4, 5, 5])]
    gives = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["E", 2])]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    graph = helper.make_graph([conv, *nodes, *last], "g", given, gives, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def normalized(
    path, size=3, before=None, placed=(-1, 1, 6, 3, 3), squared=("edges", "edges"), filling=0.0, back=False
):
    """The nodes and constants that torch.onnx.export(dynamo=True) of torch 2.13 writes for
    nn.LocalResponseNorm; "again" where `back`.
    """
    before = size // 2 if before is None else before
    nodes = [
        helper.make_node("Mul", squared, ["squares"]),
        helper.make_node("Reshape", ["squares", "placed"], ["view"], allowzero=1),
        helper.make_node("Pad", ["view", "around", "filling"], ["pad"], mode="constant"),
        helper.make_node(
            "AveragePool",
            ["pad"],
            ["means"],
            count_include_pad=1,
            ceil_mode=0,
            pads=[0] * 6,
            auto_pad="NOTSET",
            strides=[1, 1, 1],
            kernel_shape=[size, 1, 1],
        ),
        helper.make_node("Squeeze", ["means", "axis"], ["squeeze"]),
        helper.make_node("Reshape", ["squeeze", "back"], ["again"]),
        helper.make_node("Mul", ["again" if back else "squeeze", "alpha"], ["scaled"]),
        helper.make_node("Add", ["scaled", "k"], ["raised"]),
        helper.make_node("Pow", ["raised", "beta"], ["power"]),
        helper.make_node("Div", ["edges", "power"], ["bright"]),
    ]
    around = np.array([0, 0, before, 0, 0, 0, 0, size - 1 - before, 0, 0])
    floats = {
        name: np.float32(value)
        for name, value in {"alpha": 0.5, "k": 1.5, "beta": 0.6, "filling": filling}.items()
    }
    nodes = [node for node in nodes if back or node.output[0] != "again"]
    floats |= {"other": numbers(6, 3, 3)}
    return written(
        path,
        nodes,
        back=np.array([-1, 6, 3, 3]),
        placed=np.array(placed),
        around=around,
        axis=np.array([1]),
        **floats,
    )


@pytest.mark.parametrize(("size", "before"), [(3, 1), (5, 2), (4, 1)])
def test_what_pytorch_exports_scores_as_onnxruntime_computes_it(size, before, tmp_path):
    path = normalized(tmp_path / "m.onnx", size, before)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"image": IMAGES})
    model = import_network(path, tmp_path / "run")
    assert [layer.function.kind for layer in model.run.network.hidden if layer.kind == "pooling"] == ["lrn"]
    assert np.allclose(scored(model, image=IMAGES.reshape(3, -1))["y"], wanted, rtol=1e-5, atol=1e-5)


def test_an_even_number_of_channels_as_pytorch_takes_it_is_refused(tmp_path):
    with pytest.raises(
        DataError,
        match=(
            r'"bright" \(LocalResponseNorm of 4 channels, 2 of them before each; widenet has the longer half'
        ),
    ):
        import_network(normalized(tmp_path / "m.onnx", 4), tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [{"placed": (-1, 1, 3, 6, 3), "back": True}, {"squared": ("edges", "other")}, {"filling": 1.0}],
    ids=str,
)
def test_nodes_that_compute_something_else_are_refused(change, tmp_path):
    path = tmp_path / "m.onnx"
    with pytest.raises(DataError, match="have no counterpart"):
        import_network(normalized(path, **change), tmp_path / "run")
