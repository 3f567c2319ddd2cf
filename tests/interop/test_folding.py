"""Single nodes after a product: those that join the layer before them, and those that no layer takes up."""

import numpy as np
import onnxruntime
import pytest

from tests.interop.outcomes import scored
from tests.interop.test_onnx_import import Written, X, numbers
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
    path = written.save(tmp_path / "model.onnx", y=written.op("LogSoftmax", written.op("Gemm", "x", numbers(5, 9)), axis=1))
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    model = import_network(path, tmp_path / "run")
    assert np.allclose(scored(model, x=X)["y"], np.exp(wanted), rtol=1e-5, atol=1e-6)
    output = model.network.outputs["y"].spec
    assert (output.activation.kind, output.loss.kind) == ("softmax", "cross_entropy")


NO_COUNTERPARTS = [
    (
        lambda w, v: w.op("LayerNormalization", v, numbers(4), numbers(4), axis=-1, epsilon=1e-5),
        "LayerNormalization by the mean and variance of an example's own units, which no layer here computes",
    ),
    (lambda w, v: w.op("LogSoftmax", v, axis=1), "the logarithm of a softmax, which only an output can do without"),
    (lambda w, v: w.op("Clip", v, np.float32(0), np.float32(6)), "Clip with other bounds than 0 from below"),
    (lambda w, v: w.op("Max", v, np.float32([0.5])), "Max with other bounds than 0 from below"),
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
