"""A step of training a DSSTNE network, against DSSTNE's formulas written out in float64."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.dsstne.files import dense_set, sparse_set
from tests.model.twin import Real, dense, entries_of, random_batch, snapshot, sparse
from widenet.data.dataset import Dataset
from widenet.dsstne.data import import_data
from widenet.dsstne.model_import import import_model
from widenet.dsstne.train import network_of, train
from widenet.runs import Silence

P, BETA, DROP, NOISE, ALPHA, L2, L1 = 0.2, 0.05, 0.4, 0.3, 0.5, 0.01, 0.002
MARGIN = {"oneTarget": 0.6, "zeroTarget": 0.4, "oneScale": 1.5, "zeroScale": 0.7}
BOOST = {"one": 3.0, "zero": 0.5}
HIDDEN = ["Sigmoid", "Tanh", "Relu", "Linear", "LRelu", "ELU", "SELU", "SoftPlus"]
OUTPUTS = [
    ("CrossEntropy", "Sigmoid"),
    ("CrossEntropy", "SoftMax"),
    ("ScaledMarginalCrossEntropy", "Sigmoid"),
    ("DataScaledMarginalCrossEntropy", "Sigmoid"),
    ("L2", "Sigmoid"),
    ("L1", "Tanh"),
    ("L1", "Sigmoid"),
    ("L2Hinge", "Linear"),
    ("L2Hinge", "Sigmoid"),
]


def activated(name, z):
    e = torch.exp(z.clamp(max=0)) - 1
    match name:
        case "Sigmoid":
            return 1 / (1 + torch.exp(-z))
        case "Tanh":
            return torch.tanh(z)
        case "Relu":
            return z.clamp_min(0)
        case "LRelu":
            return torch.maximum(z, 0.3 * z)
        case "ELU":
            return torch.where(z > 0, z, 1.2 * e)
        case "SELU":
            return 1.1 * torch.where(z > 0, z, 1.2 * e)
        case "SoftMax":
            return torch.exp(z) / torch.exp(z).sum(dim=1, keepdim=True)
    return z


def silenced(name, a, kept):
    """Units after dropout (section 1.8)."""
    if name == "Sigmoid":
        return torch.where(kept, a, 0.5)
    if name in ("ELU", "SELU"):
        floor = -1.2 * (1.1 if name == "SELU" else 1.0)
        factor = 1 / math.sqrt((1 - DROP) + floor**2 * DROP * (1 - DROP))
        return torch.where(kept, factor * a, factor * floor) - factor * DROP * floor
    return a * kept / (1 - DROP)


def slope(name, unit, drop):
    """f' in terms of the unit (section 1.5)."""
    match name:
        case "Sigmoid":
            return unit * (1 - unit)
        case "Tanh":
            s = 1 / (1 - drop)
            return s * (1 - (unit / s) ** 2)
        case "Relu":
            return (unit > 0).double()
        case "LRelu":
            return torch.where(unit > 0, 1.0, 0.3).double()
        case "ELU":
            return torch.where(unit > 0, 1.0, unit + 1.2)
        case "SELU":
            return torch.where(unit > 0, 1.1, unit + 1.1 * 1.2)
    return torch.ones_like(unit)


def output_delta(function, name, a, t, listed):
    """dE/dz at the output (section 1.7), but for an example without targets under a softmax, which pulls
    nowhere here.
    """
    one, boost = listed.double(), torch.where(listed, BOOST["one"], BOOST["zero"])
    if function == "CrossEntropy" and name == "SoftMax":
        return (a - one / one.sum(dim=1, keepdim=True).clamp_min(1)) * listed.any(dim=1, keepdim=True)
    if function == "CrossEntropy":
        return boost * (a - one)
    if "Scaled" in function:
        scale = MARGIN["oneScale"] * (t if function.startswith("Data") else one)
        ones = torch.where(a < MARGIN["oneTarget"], scale * (a - 1), 0.0)
        return torch.where(listed, ones, torch.where(a > MARGIN["zeroTarget"], MARGIN["zeroScale"] * a, 0.0))
    if function == "L1":
        return boost * torch.sign(a - one) * slope(name, a, 0.0)
    if function == "L2":
        return boost * (a - t) * slope(name, a, 0.0)
    d = torch.where(t > 0, (a - t.abs()).clamp_max(0), (a - t.abs()).clamp_min(0))
    return d * slope(name, a, 0.0)


def shortened(delta, norm):
    return delta * (norm / delta.norm(dim=1, keepdim=True).clamp_min(1e-300)).clamp_max(1)


def stepped(weights, x, t, listed, kept, hidden, function, output):
    """Where one step of SGD takes the weights (sections 1.7, 1.8 and 4); L1 of a feature waits until an
    example has it.
    """
    a = activated(hidden, x @ weights["H", "In"] + weights["H", "bias"])
    units = silenced(hidden, a, kept)
    delta = shortened(
        output_delta(
            function,
            output,
            activated(output, units @ weights["Out", ""] + weights["Out", "bias"]),
            t,
            listed,
        ),
        0.8,
    )
    mean = units.mean(dim=0).clamp(1e-6, 1 - 1e-6)
    below = delta @ weights["Out", ""].T + BETA * (-P / mean + (1 - P) / (1 - mean))
    below = shortened(below * slope(hidden, units, DROP), 0.3)
    moved = {}
    for name, source, source_units, end in (("Out", "", units, delta), ("H", "In", x, below)):
        old = weights[name, source]
        gradient = -(source_units.T @ end) / len(x)
        reached = (source_units != 0).any(dim=0)[:, None] if name == "H" else torch.ones(1)
        moved[name, source] = old + ALPHA * (gradient - L2 * old - L1 * torch.sign(old) * reached)
        moved[name, "bias"] = weights[name, "bias"] - ALPHA * end.mean(dim=0)
    return moved


def document(hidden, function, output):
    layers = [
        {"Kind": "Input", "Name": "In", "N": 23, "DataSet": "in", "Sparse": True},
        {
            "Name": "H",
            "N": 6,
            "Activation": hidden,
            "pDropout": DROP,
            "Sparse": True,
            "DeltaNorm": 0.3,
            "WeightInit": {"Scale": 3},
        },
        {"Kind": "Output", "Name": "Out", "N": 37, "DataSet": "out", "Activation": output, "DeltaNorm": 0.8},
    ]
    network = {
        "Slope": 0.3,
        "ELUAlpha": 1.2,
        "SELULambda": 1.1,
        "SparsenessPenalty": {"p": P, "beta": BETA},
        "Denoising": {"p": NOISE},
    }
    return {
        **network,
        "ErrorFunction": function,
        "DeltaBoost": BOOST,
        "ScaledMarginalCrossEntropy": MARGIN,
        "Layers": layers,
    }


@pytest.mark.parametrize("analog", [False, True], ids=["boolean", "analog"])
@pytest.mark.parametrize(
    ("hidden", "function", "output"),
    [*[(hidden, "CrossEntropy", "Sigmoid") for hidden in HIDDEN], *[("Sigmoid", *pair) for pair in OUTPUTS]],
)
def test_a_step_is_the_one_that_dsstnes_formulas_give(hidden, function, output, analog):
    generator = torch.Generator().manual_seed(5)
    values = (lambda n: 0.1 + 0.9 * torch.rand(n, generator=generator)) if analog else None
    batch = {
        "in": random_batch(generator, 7, 23, 6, values),
        "out": random_batch(generator, 7, 37, 6, values),
    }
    training = {"optimizer": {"kind": "sgd", "learning_rate": ALPHA}, "l2": L2, "l1": L1}
    real = Real(
        document(hidden, function, output), training, {"in": sparse(23, 0, 1), "out": sparse(37, 0, 1)}
    )
    before = snapshot(real.network)
    stored = entries_of(batch["in"])
    stays = real.random.kept("denoise/In", (len(stored),), NOISE).tolist()
    x, _ = dense([entry for entry, kept in zip(stored, stays, strict=True) if kept], 7, 23)
    t, listed = dense(entries_of(batch["out"]), 7, 37)
    kept = torch.from_numpy(real.random.kept("dropout/H", (7, 6), DROP))
    expected = stepped(before, x / (1 - NOISE), t, listed, kept, hidden, function, output)
    real.step(batch)
    for key, after in snapshot(real.network).items():
        largest = (expected[key] - before[key]).abs().max().item()
        assert largest > 0
        torch.testing.assert_close(
            after,
            expected[key],
            rtol=0,
            atol=1e-5 * max(largest, 0.1),
            msg=lambda text, key=key: f"{key}: {text}",
        )


@pytest.mark.parametrize(("flags", "shape"), [(["Sparse"], None), ([], (1, 2, 4))])
def test_a_dense_input_has_the_dimensions_of_its_data_and_a_sparse_one_is_flat(
    flags, shape, netcdf, tmp_path
):
    rows = [[1, 5], [7]]
    given = (
        sparse_set(0, "in", rows, sides=(4, 2))
        if flags
        else dense_set(0, "in", np.ones((2, 8)), sides=(4, 2))
    )
    import_data([netcdf("x.nc", given, sparse_set(1, "out", rows))], tmp_path / "data", targets=["out"])
    layers = [{"DataSet": "in", "N": "auto"}, {"N": 3}, {"DataSet": "out", "N": "auto"}]
    network, _ = network_of({"Layers": layers}, Path("config.json"), Dataset.open(tmp_path / "data").manifest)
    assert network.inputs[0].shape == shape


def test_a_sound_is_trained_by_convolutions_and_dsstne_can_read_what_comes_out(netcdf, tmp_path):
    random = np.random.default_rng(0)
    sound = dense_set(0, "sound", random.normal(size=(20, 36)), sides=(12, 3))
    wave = dense_set(1, "wave", random.random((20, 20)), sides=(10, 2))
    config = {
        "Layers": [
            {"Name": "In", "Kind": "Input", "DataSet": "sound", "N": "auto"},
            {"Name": "C", "Type": "Convolutional", "N": 4, "Kernel": 3, "Sparse": True},
            {"Name": "Spare", "N": 3},
            {
                "Name": "Wave",
                "Kind": "Output",
                "Type": "Convolutional",
                "Source": "C",
                "Kernel": 3,
                "N": "auto",
                "DataSet": "wave",
                "pDropout": 0.2,
            },
            {"Name": "Kind", "Kind": "Output", "Source": "C", "N": "auto", "DataSet": "kind"},
        ],
        "SparsenessPenalty": {"p": 0.3, "beta": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    data = netcdf("data.nc", sound, wave, sparse_set(2, "kind", [[row % 4] for row in range(20)], sides=(4,)))
    model = train(
        tmp_path / "config.json", [data], tmp_path / "gl.nc", {"epochs": 2, "batch_size": 10}, Silence()
    )
    assert import_model(tmp_path / "gl.nc", tmp_path / "back").fingerprint() == model.fingerprint()
