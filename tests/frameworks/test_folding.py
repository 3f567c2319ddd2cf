"""Single nodes after a product: those that join the layer before them, and those that no layer takes up."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.frameworks.test_onnx_import import Written, X, numbers
from tests.interop.outcomes import scored
from widenet.errors import DataError
from widenet.interop.import_network import import_network


def rectified(w):
    """As PyTorch's newer exporter writes clamp(min=0)."""
    hidden = w.op("Max", w.op("Gemm", "x", numbers(5, 4)), np.float32(0))
    return {"y": w.op("Gemm", w.op("Max", np.float32(0), w.op("Gemm", hidden, numbers(4, 4))), numbers(4, 2))}


def test_a_maximum_with_0_is_a_rectifier(tmp_path):
    written = Written()
    path = written.save(tmp_path / "model.onnx", **rectified(written))
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    assert np.allclose(scored(import_network(path, tmp_path / "run"), x=X)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_the_logarithm_of_a_softmax_ranks_as_the_softmax_does(tmp_path):
    written = Written()
    path = written.save(
        tmp_path / "model.onnx", y=written.op("LogSoftmax", written.op("Gemm", "x", numbers(5, 9)), axis=1)
    )
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    model = import_network(path, tmp_path / "run")
    assert np.allclose(scored(model, x=X)["y"], np.exp(wanted), rtol=1e-5, atol=1e-6)
    output = model.network.outputs["y"].spec
    assert (output.activation.kind, output.loss.kind) == ("softmax", "cross_entropy")


NO_COUNTERPARTS = [
    (
        lambda w, v: w.op("LayerNormalization", v, numbers(4), numbers(4), axis=-1, epsilon=1e-5),
        "LayerNormalization by the mean and variance of an example's own units, which no layer of widenet"
        " computes",
    ),
    (
        lambda w, v: w.op("LogSoftmax", v, axis=1),
        "the logarithm of a softmax that is not an output",
    ),
    (
        lambda w, v: w.op("Clip", v, np.float32(0), np.float32(6)),
        "Clip with bounds other than a minimum of 0",
    ),
    (lambda w, v: w.op("Max", v, np.float32([0.5])), "Max with bounds other than a minimum of 0"),
]


@pytest.mark.parametrize(("build", "why"), NO_COUNTERPARTS)
def test_what_no_layer_here_computes_is_refused_with_the_reason(build, why, tmp_path):
    written = Written()
    hidden = build(written, written.op("Gemm", "x", numbers(5, 4)))
    path = written.save(tmp_path / "model.onnx", y=written.op("Gemm", hidden, numbers(4, 2)))
    with pytest.raises(DataError) as raised:
        import_network(path, tmp_path / "run")
    assert f"({why})." in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_the_loop_of_an_embedding_bag_names_what_to_export_instead(tmp_path):
    """The loop that torch.onnx.export(dynamo=False) writes for nn.EmbeddingBag with
    include_last_offset=True.
    """
    written = Written(())
    written.inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [name]) for name in ("items", "ends")
    ]
    matrix, axis, go_on = (
        written.constant(numbers(9, 5)),
        written.constant(np.array([0])),
        written.constant(np.array(True)),
    )
    stops = written.op("Slice", "ends", np.array([1]), np.array([2**62]), axis)
    body = [
        helper.make_node("Gather", ["ends", "example"], ["start"]),
        helper.make_node("Gather", [stops, "example"], ["stop"]),
        helper.make_node("Unsqueeze", ["start", axis], ["from"]),
        helper.make_node("Unsqueeze", ["stop", axis], ["to"]),
        helper.make_node("Slice", ["items", "from", "to", axis], ["own"]),
        helper.make_node("Gather", [matrix, "own"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", axis], ["sum"], keepdims=0),
        helper.make_node("Cast", [go_on], ["still"], to=TensorProto.BOOL),
    ]
    takes = [
        helper.make_tensor_value_info("example", TensorProto.INT64, []),
        helper.make_tensor_value_info("before", TensorProto.BOOL, []),
    ]
    gives = [
        helper.make_tensor_value_info("still", TensorProto.BOOL, []),
        helper.make_tensor_value_info("sum", TensorProto.FLOAT, [None]),
    ]
    count = written.op("Gather", written.op("Shape", stops), np.array(0))
    bags = written.op("Loop", count, go_on, body=helper.make_graph(body, "bag", takes, gives))
    path = written.save(tmp_path / "model.onnx", y=written.op("Gemm", bags, numbers(5, 2)))
    onnxruntime.InferenceSession(path)
    with pytest.raises(
        DataError,
        match=r"Loop; if it is an EmbeddingBag, export an Embedding and its sum or mean over the second axis",
    ):
        import_network(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
