"""Convolutions and poolings read from ONNX: they score as onnxruntime computes them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.frameworks.test_onnx_import import Written, image, numbers, turned
from tests.interop.outcomes import scored
from widenet.errors import DataError
from widenet.frameworks import operations
from widenet.frameworks.onnx_export import export_onnx
from widenet.interop.import_network import import_network


def ends_of_convolutions(w):
    first = w.op("Relu", w.op("Conv", "image", numbers(4, 2, 3, 3), numbers(4), pads=[1, 1, 1, 1]))
    means = w.op("Flatten", w.op("GlobalAveragePool", first))
    largest = w.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    hidden = w.op("Tanh", w.op("Gemm", means, numbers(4, 3)))
    outputs = {
        "shares": w.op("Softmax", means),
        "means": means,
        "largest": w.op("Flatten", largest),
        "filters": w.op("Flatten", first),
    }
    return outputs | {"hidden": hidden, "y": w.op("Gemm", hidden, numbers(3, 2))}


def test_a_network_may_end_in_pooling_in_a_convolution_or_in_what_others_take_too(tmp_path):
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 2, 5, 6])]
    path, images = written.save(tmp_path / "model.onnx", **ends_of_convolutions(written)), numbers(4, 2, 5, 6)
    session = onnxruntime.InferenceSession(path)
    wanted = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {"image": images}),
            strict=True,
        )
    )
    model = import_network(path, tmp_path / "run")
    found = scored(model, image=images.reshape(4, -1))
    assert found.keys() == wanted.keys()
    for name, numbers_EL in wanted.items():
        assert np.allclose(found[name], numbers_EL, rtol=1e-5, atol=1e-5), name
    export_onnx(model, tmp_path / "again.onnx")
    again = onnxruntime.InferenceSession(tmp_path / "again.onnx").run(
        list(wanted), {"image": images.reshape(4, -1)}
    )
    assert all(
        np.allclose(one, wanted[name], rtol=1e-5, atol=1e-5) for name, one in zip(wanted, again, strict=True)
    )
    assert import_network(tmp_path / "again.onnx", tmp_path / "back").fingerprint() == model.fingerprint()


@pytest.mark.parametrize(
    "build",
    [lambda _: "x", lambda w: w.op("Mul", w.op("Relu", w.op("Gemm", "x", numbers(5, 4))), numbers(4))],
)
def test_a_network_must_end_in_the_units_of_a_layer(build, tmp_path):
    written = Written()
    path = written.save(tmp_path / "model.onnx", y=written.op("Gemm", "x", numbers(5, 2)), z=build(written))
    with pytest.raises(DataError, match=r'output "z" \(an output must be the unchanged units of one layer'):
        import_network(path, tmp_path / "run")


@pytest.mark.parametrize("shape", [(4, 6, 5), (5, 4, 6), (2, 10, 6)])
def test_units_that_change_their_axes_are_refused(shape, tmp_path):
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 2, 5, 6])]
    path = written.save(tmp_path / "model.onnx", y=written.op("Flatten", turned(written, shape, [2, 2])))
    with pytest.raises(DataError, match=r"units \[4, 5, 6\] reshaped to"):
        import_network(path, tmp_path / "run")
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 2, 5, 6])]
    path, images = (
        written.save(tmp_path / "same.onnx", y=written.op("Flatten", turned(written, (4, 5, 6), [2, 2]))),
        numbers(3, 2, 5, 6),
    )
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"image": images})
    assert np.allclose(
        scored(import_network(path, tmp_path / "same"), image=images.reshape(3, -1))["y"], wanted, atol=1e-5
    )


def shifted(w):
    """Scales and shifts before what cannot take them up, sums of activated units, and windows that
    overhang.
    """
    first = w.op(
        "Relu",
        w.op(
            "Conv",
            w.op("Add", w.op("Mul", "image", np.float32([2.0])), np.float32([-1.0])),
            numbers(3, 2, 3, 3),
            pads=[1] * 4,
        ),
    )
    normal = w.op("BatchNormalization", first, numbers(3), numbers(3), numbers(3), np.abs(numbers(3)))
    largest = w.op("MaxPool", normal, kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1)
    again = w.op("Conv", w.op("Add", first, numbers(3, 1, 1)), numbers(3, 3, 2, 2))
    both = w.op(
        "Add", w.op("Clip", again, np.float32(0)), w.op("Sigmoid", w.op("Conv", first, numbers(3, 3, 2, 2)))
    )
    flat = w.op(
        "Concat", w.op("Flatten", largest), w.op("ReduceMean", both, np.int64([2, 3]), keepdims=0), axis=1
    )
    return {"y": w.op("Gemm", flat, numbers(3 * 3 * 2 + 3, 2))}


@pytest.mark.parametrize("build", [image, shifted])
def test_an_imported_convolutional_model_scores_as_onnxruntime_does(build, tmp_path):
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 2, 5, 6])]
    path = written.save(tmp_path / "model.onnx", **build(written))
    images = numbers(4, 2, 5, 6)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"image": images})
    model = import_network(path, tmp_path / "run")
    # The terms of a small score are as large as those of the largest, and so is what rounding leaves of them.
    rounding = 1e-6 * np.abs(wanted).max()
    assert np.allclose(scored(model, image=images.reshape(4, -1))["y"], wanted, rtol=1e-5, atol=rounding)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_response_over_any_number_of_channels_is_that_of_the_standard(size, tmp_path):
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 5, 2, 3])]
    active = written.op("LRN", "image", size=size, alpha=2.0, beta=0.6, bias=1.5)
    path = written.save(
        tmp_path / "model.onnx", y=written.op("Gemm", written.op("Flatten", active), numbers(30, 3))
    )
    images = numbers(5, 5, 2, 3)  # as many as channels: the reference counts the one for the other
    (wanted,) = ReferenceEvaluator(str(path)).run(
        None, {"image": images}
    )  # onnxruntime takes odd sizes alone
    model = import_network(path, tmp_path / "run")
    assert np.allclose(scored(model, image=images.reshape(5, -1))["y"], wanted, rtol=1e-5, atol=1e-5)


def test_dilations_of_any_size_take_no_memory(tmp_path):
    weights = {"kernel": numbers(4, 2, 3, 3)}
    build = helper.make_graph(
        [helper.make_node("Conv", ["x", "kernel"], ["y"], dilations=[2**20, 2**20])],
        "far",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4, 8, 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(build, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "far.onnx")
    with pytest.raises(DataError, match=r"dilations \[1048576, 1048576\] make a kernel of 2097153 x 2097153"):
        import_network(tmp_path / "far.onnx", tmp_path / "run")


def test_groups_of_any_number_take_no_memory_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(operations, "available_memory", lambda: 10_000)
    written = Written(())
    written.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["E", 64, 5, 6])]
    path = written.save(
        tmp_path / "model.onnx", y=written.op("Conv", "image", numbers(64, 1, 1, 1), group=64)
    )
    with pytest.raises(DataError, match=r"64 groups make filters of 16\.\d kB; 10\.0 kB are free"):
        import_network(path, tmp_path / "run")
