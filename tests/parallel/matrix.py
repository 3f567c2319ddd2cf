"""Cases that together hold every setting of a network and its training, and what each gives."""

import random

import numpy as np
import torch

from widenet.baselines.evaluate import evaluate
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.stream import Stream
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.product import own_examples
from widenet.plan.binding import bind
from widenet.predict.top_k import Rules, top_k
from widenet.spec.activations import RESTING
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.checkpoint import fingerprint
from widenet.training.schedules import rates
from widenet.training.step import norm_of, norms_of_weights, settle, train_step

SHARDS, STEPS, EXAMPLES = 8, 2, 12
SETTINGS = {
    "output": [
        {},
        {"loss": {"kind": "cross_entropy", "targets": "sum"}},
        {"activation": "sigmoid"},
        {"loss": "scaled_marginal_cross_entropy"},
        {"activation": "sigmoid", "loss": "data_scaled_marginal_cross_entropy"},
        {"activation": "softmax", "loss": "l2"},
        {"activation": "relu_max", "loss": "l2"},
        {"activation": "linear_max", "loss": "l1"},
        {"activation": "tanh", "loss": "hinge"},
        {"activation": "leaky_relu", "loss": "l2_hinge"},
    ],
    "optimizer": ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw"],
    "shape": ["tied", "tied, by rows", "deep", "towers", "two inputs", "two outputs"],
    "noise": ["none", "dropout", "dropout to rest", "denoise", "hidden asked for"],
    "hidden": ["tanh", "softmax", "linear_max", "sparseness"],
    "limits": [{}, {"gradient": 0.05}, {"weight": 0.5}, {"gradient": 0.05, "weight": 0.5}, {"delta": 0.05}],
    "data": ["ones", "values", "narrow", "dense"],
    "cosine": [False, True],
    "precision": ["float32", "bfloat16"],
    "sample": [None, {"kind": "uniform", "units": 4}, {"kind": "popularity", "units": 5, "power": 0.5}],
}
DEEP_EXAMPLES = 260
DEEP = (
    [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "age", "kind": "input", "field": "age"},
        {"name": "h", "units": 500, "source": "in"},
        {
            "name": "mid",
            "units": 520,
            "source": ["h", "age"],
            "activation": "relu",
            "dropout": 0.2,
            "weight_norm": 0.9,
        },
        {
            "name": "back",
            "units": 500,
            "source": "mid",
            "weights": {"layer": "mid", "layer_source": "h", "transposed": True},
        },
        {"name": "out", "kind": "output", "field": "items", "source": ["back", "h"]},
    ],
    {
        "epochs": 1,
        "batch_size": DEEP_EXAMPLES,
        "shards": SHARDS,
        "optimizer": "adam",
        "gradient_norm_limit": 0.5,
    },
)
"""A network whose hidden layers are large enough for several blocks of their products, and its training."""
PICTURES = (
    [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "picture", "kind": "input", "field": "picture", "shape": [3, 12, 12]},
        {
            "name": "edges",
            "kind": "convolution",
            "filters": 48,
            "kernel": 3,
            "activation": "relu",
            "batch_normalization": True,
        },
        {
            "name": "parts",
            "kind": "convolution",
            "filters": 48,
            "kernel": 3,
            "skip": "edges",
            "dropout": 0.2,
        },
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {"name": "even", "kind": "pooling", "function": "lrn"},
        {
            "name": "h",
            "units": 40,
            "source": ["even", "in"],
            "activation": "tanh",
            "batch_normalization": {"momentum": 0.5},
        },
        {"name": "out", "kind": "output", "field": "items"},
    ],
    {
        "epochs": 1,
        "batch_size": 40,
        "shards": SHARDS,
        "optimizer": "adam",
        "gradient_norm_limit": 0.5,
        "l2": 0.01,
    },
)
"""A network over pictures, whose second convolution is large enough for several blocks, and its training."""
WIDTHS = {"ones": 29, "values": 61, "narrow": 5, "dense": 13, "wide": 3001}
LINEAR = {
    "output": {"activation": "linear", "loss": "l2"},
    "optimizer": "sgd",
    "shape": "deep",
    "noise": "dropout",
    "hidden": "tanh",
    "limits": {},
    "data": "wide",
    "cosine": False,
    "precision": "float32",
    "sample": None,
}
STANDING = [
    {
        **LINEAR,
        "output": output,
        "shape": "on the input",
        "data": data,
        "optimizer": optimizer,
        "limits": limits,
        "noise": noise,
    }
    for output, data, optimizer, limits, noise in (
        ({}, "values", "momentum", {}, "none"),
        ({"activation": "sigmoid"}, "ones", "rmsprop", {"gradient": 0.05}, "hidden asked for"),
        ({"activation": "linear", "loss": "l2"}, "narrow", "sgd", {"delta": 0.05}, "denoise"),
    )
]
"""Outputs on a sparse input, which have none of the settings that need hidden vectors."""
BY_ROWS = {
    **LINEAR,
    "output": {},
    "optimizer": {"kind": "adagrad", "per_row": True},
    "shape": "tied",
    "limits": {"gradient": 0.05},
    "data": "values",
}

CHANCE = random.Random(0)
ORDERS = {name: CHANCE.sample(values, len(values)) for name, values in SETTINGS.items()}
IN_TURN = [
    {name: values[number % len(values)] for name, values in ORDERS.items()}
    for number in range(max(map(len, ORDERS.values())))
]
EVERY_VALUE = [LINEAR, *STANDING, *IN_TURN, BY_ROWS]
DRAWN = [{name: CHANCE.choice(values) for name, values in SETTINGS.items()} for _ in range(100)]
SOME_VALUES = [STANDING[0], BY_ROWS, *EVERY_VALUE[::3]]
FEW_VALUES = [LINEAR, STANDING[1], BY_ROWS, *EVERY_VALUE[5::6]]


COSINE = {"temperature": 1, "prediction_temperature": 1.5}


def given(**settings):
    """Settings without those that are None."""
    return {name: value for name, value in settings.items() if value is not None}


def documents(case):
    """The network and the training of a case."""
    noise, weight, delta = case["noise"], case["limits"].get("weight"), case["limits"].get("delta")
    sample = case["sample"] if may_be_sampled(case) else None
    denoise = 0.4 if noise in ("denoise", "hidden asked for") else None
    history = {"name": "in", "kind": "input", "field": "items", "scale": "rsqrt", "popularity_damping": 0.5}
    history |= given(denoise=denoise)
    is_sparse = case["hidden"] == "sparseness"
    activation = "sigmoid" if is_sparse else case["hidden"]
    rests = noise == "dropout to rest" and activation in RESTING
    h = {"name": "h", "units": 6, "source": "in", "activation": activation} | given(
        sparseness={} if is_sparse else None,
        dropout=0.3 if noise.startswith("dropout") else None,
        dropout_form="rest" if rests else None,
        weight_norm=weight,
        delta_norm=delta,
    )
    out = {"name": "out", "kind": "output", "field": "items", "source": "h", **case["output"]} | given(
        cosine=COSINE if case["cosine"] else None,
        predict="hidden" if noise == "hidden asked for" else None,
        sample=sample,
        weight_norm=weight if sample is None else None,
        delta_norm=delta if sample is None else None,
        delta_boost=None if delta is None else {"target": 2.0, "other": 0.5},
    )
    of_out, of_h = ({"layer": name, "transposed": True} for name in ("out", "h"))
    mid = {"name": "mid", "units": 5, "activation": "gelu", **given(weight_norm=weight)}
    mix = {"name": "mix", "units": 5, "source": ["h", "age", "in"], "activation": "silu"}
    label = {"name": "label", "kind": "output", "field": "label", "activation": "sigmoid", "bias": False}
    guess = {"name": "guess", "kind": "output", "field": "age", "activation": "softmax", "loss": "l2"}
    want = {"name": "want", "kind": "output", "field": "wishes", "activation": "sigmoid"}
    layers = {
        "tied": [history, h, out | {"weight_norm": None, "weights": of_h}],
        "tied, by rows": [history, h | {"weight_norm": None, "weights": of_out}, out],
        "deep": [history, h, mid, out | {"source": "mid"}],
        "towers": [
            history,
            {"name": "age", "kind": "input", "field": "age", "dropout": 0.2},
            h,
            mix | given(weight_norm=weight),
            out | {"source": ["mix", "h", "age"], "loss_weight": 0.7},
            label | {"source": "mix"},
            guess | {"source": "mix"},
        ],
        "two inputs": [
            history,
            {"name": "wish", "kind": "input", "field": "wishes", "scale": "mean"},
            h,
            {"name": "g", "units": 6, "source": "wish", "activation": "relu", "weights": {"layer": "h"}},
            out | {"source": ["h", "g"]},
        ],
        "on the input": [history, out | {"source": "in"}, h, label | {"source": "h"}],
        "two outputs": [history, h, out, want | {"source": "h", "weights": {"layer": "out"}}],
    }[case["shape"]]
    training = {
        "epochs": 1,
        "batch_size": EXAMPLES // STEPS,
        "shards": SHARDS,
        "optimizer": case["optimizer"],
        "precision": case["precision"],
        "l2": 0.02,
        "gradient_norm_limit": case["limits"].get("gradient"),
    }
    return NetworkSpec.of({"layers": layers}), TrainingSpec.of(training)


def may_be_sampled(case):
    """Whether the output's activation and loss go together with a sample."""
    activation = case["output"].get("activation", "softmax")
    loss = case["output"].get("loss", "cross_entropy")
    return activation not in ("softmax", "relu_max", "linear_max") or loss not in ("l1", "l2")


def write_data(folder):
    """Datasets of every kind that SETTINGS names, each in a folder of that name."""
    for name, width in WIDTHS.items():
        _dataset(folder / name, name, width, EXAMPLES)
    _dataset(folder / "deep", "dense", 31, 2 * DEEP_EXAMPLES)
    for pictures, examples in (("pictures", 2 * 40), ("few pictures", 20 + 6)):
        _dataset(folder / pictures, "dense", 31, examples, picture=3 * 12 * 12)
    return folder


def _dataset(path, name, width, examples, picture=1):
    chance = np.random.default_rng(width)
    rows = [
        chance.choice(width, size=chance.integers(2, min(width, 6)), replace=False).tolist()
        for _ in range(examples)
    ]
    wishes = [chance.choice(width, size=2, replace=False).tolist() for _ in rows[1:]]
    kept = [[] if example == 3 else row[:-1] for example, row in enumerate(rows)]
    has_values, has_weights = name in ("values", "wide"), name in ("narrow", "values", "wide")
    dataset_from_lists(
        path,
        kept,
        heldout=[row[-1:] for row in rows],
        width=width,
        values=[(0.2 + 0.8 * chance.random(len(row))).tolist() for row in kept] if has_values else None,
        weights=(0.5 + chance.random(examples)).tolist() if has_weights else None,
        sparse={"wishes": [[width - 1], *wishes], "label": [[example % 4] for example in range(examples)]},
        dense={
            "age": (chance.random((examples, 3)) * (name == "dense")).tolist(),
            "picture": chance.random((examples, picture)).tolist(),
        },
    )


def outcome(case, folder, exchange):
    """Everything that a case gives: the loss of every step, the weights' fingerprint, the best units with
    their scores, metrics, and the norms of every step.
    """
    return outcome_in(*documents(case), Dataset.open(folder / case["data"]), exchange)


def outcome_in(spec, training, data, exchange, elsewhere=None):
    counts = {field: data.counts(field) for field in spec.counted_fields}
    network = build(bind(spec, training, data.fields), exchange, counts=counts, elsewhere=elsewhere)
    rule = Optimizer(training.optimizer, training.l1, training.l2)
    network.prepare_training(rule)
    stream = Stream(
        data,
        spec.fields,
        training.batch_size,
        training.seed,
        training.shuffle,
        own=own_examples(network.layout, exchange),
    )
    steps, losses, observed = rates(training, stream.steps_per_epoch), [], []

    def observe(values, gradients):
        hidden = [layer.name for layer in spec.hidden if layer.name in values]
        observed.append((gradients.norms(), {name: norm_of(values[name]) for name in hidden}))

    for batch in stream.batches(0):
        prepared = network.prepare(batch.fields, (0, batch.step), batch.weights)
        numbers = StepNumbers(batch.step + 1, steps)
        losses.append(train_step(network, rule, prepared, numbers, observe))
    settle(network, rule, steps, stream.steps_per_epoch)
    observed.append(norms_of_weights(network))
    fields = {layer.field: data.rows(layer.field, np.arange(5)) for layer in spec.inputs}
    rules = Rules(
        torch.arange(data.field("items").width) % 5 == 4, torch.linspace(0.5, 1.5, data.field("items").width)
    )
    plain = top_k(network, fields, "out", 7)
    filtered = top_k(network, fields, "out", 3, excluded=data.sparse("items", np.arange(5)), rules=rules)
    best = [tensor.numpy().tobytes() for tensor in (*plain, *filtered)]
    return losses, fingerprint(network), best, evaluate(network, data, "heldout", [1, 3], "out"), observed
