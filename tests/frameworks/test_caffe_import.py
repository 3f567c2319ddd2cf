"""Caffe networks read: files written through the published field numbers score as torch computes them."""

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from torch.nn import functional

from tests.interop.outcomes import scored
from widenet.frameworks.caffe_import import message
from widenet.interop.import_network import import_network

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 5)).astype(np.float32)
NET = """
name: "net"
input: "data" input_dim: 1 input_dim: 5 input_dim: 1 input_dim: 1
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" param { lr_mult: 1 }
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "ip1" top: "ip1" batch_norm_param { eps: 0.01 } }
layer { name: "scale" type: "Scale" bottom: "ip1" top: "ip1" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" relu_param { negative_slope: 0.25 } }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1"
  dropout_param { dropout_ratio: 0.4 } include { phase: TRAIN } }
layer { name: "ip2" type: "InnerProduct" bottom: "data" top: "ip2"
  inner_product_param { num_output: 3 bias_term: false transpose: true } }
layer { name: "tanh" type: "TanH" bottom: "ip2" top: "tanh" }
layer { name: "both" type: "Concat" bottom: "ip1" bottom: "tanh" top: "both" }
layer { name: "ip3" type: "InnerProduct" bottom: "both" top: "ip3" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "ip3" top: "prob" }
"""


def numbers(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


W1, B1, W2, W3, B3 = numbers(4, 5), numbers(4), numbers(5, 3), numbers(2, 7), numbers(2)
BLOBS = {
    "ip1": [W1, B1],
    "bn": [numbers(4), np.abs(numbers(4)) + 0.1, np.array([2.0], np.float32)],
    "scale": [numbers(4), numbers(4)],
    "ip2": [W2],
    "ip3": [W3, B3],
}


def truth():
    mean, variance, factor = BLOBS["bn"]
    scale, shift = BLOBS["scale"]
    normal = (X @ W1.T + B1 - mean / factor) / np.sqrt(variance / factor + 0.01) * scale + shift
    both = np.concatenate([np.where(normal > 0, normal, 0.25 * normal), np.tanh(X @ W2)], axis=1)
    return torch.softmax(torch.from_numpy(both @ W3.T + B3), dim=1).numpy()


def trained(path, blobs=BLOBS, net=None):
    """A .caffemodel; net: the layers in full, otherwise their names and weights alone."""
    found = (
        message("NetParameter")()
        if net is None
        else text_format.Parse(net, message("NetParameter")(), allow_unknown_field=True)
    )
    layers = {layer.name: layer for layer in found.layer}
    for name, arrays in blobs.items():
        layer = layers[name] if name in layers else found.layer.add(name=name)
        for array in arrays:
            blob = layer.blobs.add(data=array.reshape(-1).tolist())
            blob.shape.dim.extend(array.shape)
    path.write_bytes(found.SerializeToString())
    return path


def written(path, text=NET):
    path.write_text(text)
    return path


def test_a_prototxt_with_its_weights_scores_as_its_layers_do(tmp_path):
    net, weights = written(tmp_path / "net.prototxt"), trained(tmp_path / "net.caffemodel")
    model = import_network(net, tmp_path / "run", weights=weights)
    assert np.allclose(scored(model, data=X)["prob"], truth(), atol=1e-5)


def test_a_caffemodel_alone_holds_its_layers(tmp_path):
    model = import_network(trained(tmp_path / "net.caffemodel", net=NET), tmp_path / "run")
    assert np.allclose(scored(model, data=X)["prob"], truth(), atol=1e-5)


def test_a_training_network_predicts_what_its_loss_compares(tmp_path):
    text = """
    layer { name: "examples" type: "Data" top: "data" top: "label"
      data_param { source: "lmdb" batch_size: 64 } include { phase: TEST } }
    layer { name: "examples" type: "Data" top: "data" top: "label" include { phase: TRAIN } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
    layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
    layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "ip" bottom: "label" top: "loss" }
    """
    weight, bias = numbers(2, 5), numbers(2)
    weights = trained(tmp_path / "net.caffemodel", {"ip": [weight, bias]})
    model = import_network(written(tmp_path / "net.prototxt", text), tmp_path / "run", weights=weights)
    assert np.allclose(scored(model, data=X)["ip"], 1 / (1 + np.exp(-(X @ weight.T + bias))), atol=1e-5)
    assert model.run.network.layer("ip").loss.kind == "cross_entropy"


FIRST_FORMAT = """
name: "net" input: "data" input_dim: 1 input_dim: 5 input_dim: 1 input_dim: 1
layers { name: "ip1" type: INNER_PRODUCT bottom: "data" top: "ip1" blobs_lr: 1
  inner_product_param { num_output: 4 } }
layers { name: "relu" type: RELU bottom: "ip1" top: "ip1" relu_param { negative_slope: 0.25 } }
layers { name: "drop" type: DROPOUT bottom: "ip1" top: "ip1"
  dropout_param { dropout_ratio: 0.4 } include { phase: TRAIN } }
layers { name: "ip2" type: INNER_PRODUCT bottom: "data" top: "ip2"
  inner_product_param { num_output: 7 bias_term: false } }
layers { name: "tanh" type: TANH bottom: "ip2" top: "ip2" }
layers { name: "both" type: CONCAT bottom: "ip1" bottom: "ip2" top: "both" }
layers { name: "ip3" type: INNER_PRODUCT bottom: "both" top: "ip3" inner_product_param { num_output: 2 } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "ip3" bottom: "label" top: "loss" }
"""


@pytest.mark.parametrize("alone", [True, False])
def test_networks_of_the_first_format_are_read_too(alone, tmp_path):
    net, (w1, b1, w2, w3, b3) = (
        tmp_path / "net.prototxt",
        (numbers(4, 5), numbers(4), numbers(7, 5), numbers(2, 11), numbers(2)),
    )
    found = text_format.Parse(FIRST_FORMAT, message("NetParameter")(), allow_unknown_field=True)
    layers = {layer.name: layer for layer in found.layers}
    for name, arrays in {"ip1": [w1, b1], "ip2": [w2], "ip3": [w3, b3]}.items():
        for array in arrays:
            height = len(array) if array.ndim > 1 else 1
            layers[name].blobs.add(
                num=1, channels=1, height=height, width=array.shape[-1], data=array.reshape(-1).tolist()
            )
    (tmp_path / "net.caffemodel").write_bytes(found.SerializeToString())
    weights = tmp_path / "net.caffemodel"
    model = import_network(
        weights if alone else written(net, FIRST_FORMAT), tmp_path / "run", weights=None if alone else weights
    )
    first = X @ w1.T + b1
    both = np.concatenate([np.where(first > 0, first, 0.25 * first), np.tanh(X @ w2.T)], axis=1)
    assert np.allclose(
        scored(model, data=X)["ip3"],
        torch.softmax(torch.from_numpy(both @ w3.T + b3), dim=1).numpy(),
        atol=1e-5,
    )


def test_packed_numbers_have_the_published_layout(tmp_path):
    bits = trained(tmp_path / "net.caffemodel", {"ip": [np.array([1.5], np.float32)]}).read_bytes()
    blob = b"\x2a\x04\x00\x00\xc0\x3f" + b"\x3a\x03\x0a\x01\x01"
    layer = b"\x0a\x02ip" + b"\x3a" + bytes([len(blob)]) + blob
    assert bits == b"\xa2\x06" + bytes([len(layer)]) + layer


def test_convolutions_in_groups_and_with_dilations_score_as_torch_computes_them(tmp_path):
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 dim: 7 dim: 6 } } }
    layer { name: "c" type: "Convolution" bottom: "data" top: "c"
      convolution_param { num_output: 6 kernel_size: 2 group: 2 dilation: 3 dilation: 2 pad: 1 } }
    layer { name: "ip" type: "InnerProduct" bottom: "c" top: "ip" inner_product_param { num_output: 2 } }
    """
    kernel, bias, weight, more = numbers(6, 2, 2, 2), numbers(6), numbers(2, 6 * 6 * 6), numbers(2)
    path = trained(tmp_path / "net.caffemodel", {"c": [kernel, bias], "ip": [weight, more]})
    model = import_network(written(tmp_path / "net.prototxt", text), tmp_path / "run", weights=path)
    images = torch.from_numpy(numbers(5, 4, 7, 6))
    value = functional.conv2d(
        images, torch.from_numpy(kernel), torch.from_numpy(bias), padding=1, dilation=(3, 2), groups=2
    )
    wanted = value.flatten(1) @ torch.from_numpy(weight).T + torch.from_numpy(more)
    assert np.allclose(scored(model, data=images.flatten(1).numpy())["ip"], wanted.numpy(), atol=1e-4)


def test_a_convolutional_network_scores_as_torch_computes_it(tmp_path):
    text = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 7 dim: 6 } } }
    layer { name: "c1" type: "Convolution" bottom: "data" top: "c1"
      convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride: 1 } }
    layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
    layer { name: "n1" type: "LRN" bottom: "c1" top: "n1" lrn_param { local_size: 3 alpha: 0.5 beta: 0.6 } }
    layer { name: "p1" type: "Pooling" bottom: "n1" top: "p1"
      pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
    layer { name: "c2" type: "Convolution" bottom: "p1" top: "c2"
      convolution_param { num_output: 3 kernel_size: 2 bias_term: false } }
    layer { name: "p2" type: "Pooling" bottom: "c2" top: "p2"
      pooling_param { pool: AVE global_pooling: true } }
    layer { name: "ip" type: "InnerProduct" bottom: "p2" top: "ip" inner_product_param { num_output: 2 } }
    """
    w1, b1, w2, w3, b3 = numbers(4, 2, 3, 2), numbers(4), numbers(3, 4, 2, 2), numbers(2, 3), numbers(2)
    weights = trained(tmp_path / "net.caffemodel", {"c1": [w1, b1], "c2": [w2], "ip": [w3, b3]})
    model = import_network(written(tmp_path / "net.prototxt", text), tmp_path / "run", weights=weights)
    images = numbers(5, 2, 7, 6)
    value = functional.relu(functional.conv2d(*map(torch.from_numpy, (images, w1, b1)), padding=(1, 0)))
    value = functional.max_pool2d(functional.local_response_norm(value, 3, 0.5, 0.6, 1.0), 3, 2)
    value = functional.conv2d(value, torch.from_numpy(w2)).mean(dim=(2, 3))
    assert np.allclose(scored(model, data=images.reshape(5, -1))["ip"], value.numpy() @ w3.T + b3, atol=1e-5)


POOLED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 6 dim: 6 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { %s } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 2 } }
"""


def pooled_by_caffe(images, function, kernel, stride, rounding):
    """Caffe's windows without padding: their number is rounded up or down, and each ends where its source
    does.
    """
    count = int(rounding((images.shape[2] - kernel) / stride)) + 1
    starts = [stride * place for place in range(count)]
    found = [
        [function(images[:, :, a : a + kernel, b : b + kernel], axis=(2, 3)) for b in starts] for a in starts
    ]
    return np.moveaxis(np.array(found), (0, 1), (2, 3)).reshape(len(images), -1)


@pytest.mark.parametrize(("pool", "function"), [("MAX", np.max), ("AVE", np.mean)])
@pytest.mark.parametrize(
    ("mode", "rounding"), [("", np.ceil), ("round_mode: CEIL", np.ceil), ("round_mode: FLOOR", np.floor)]
)
def test_the_number_of_windows_is_rounded_as_caffe_rounds_it(pool, function, mode, rounding, tmp_path):
    images = numbers(5, 2, 6, 6)
    value = pooled_by_caffe(images, function, 3, 2, rounding)
    weight, bias = numbers(2, value.shape[1]), numbers(2)
    weights = trained(tmp_path / "net.caffemodel", {"ip": [weight, bias]})
    net = written(tmp_path / "net.prototxt", POOLED % f"pool: {pool} kernel_size: 3 stride: 2 {mode}")
    model = import_network(net, tmp_path / "run", weights=weights)
    assert np.allclose(scored(model, data=images.reshape(5, -1))["ip"], value @ weight.T + bias, atol=1e-5)
