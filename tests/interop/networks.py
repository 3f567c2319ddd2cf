"""Random networks of many kinds over one small dataset, and what they score."""

import numpy as np
import torch

from widenet.data.lists import dataset_from_lists
from widenet.model.build import build
from widenet.parallel.exchange import Exchange, fixed_arithmetic
from widenet.plan.binding import bind
from widenet.predict.top_k import layer_values
from widenet.runs import Model
from widenet.sparse import SparseBatch
from widenet.spec.activations import PlainActivation
from widenet.spec.document import kinds
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory

ITEMS, TAGS, PROFILE = 23, 7, 5
ROWS = [[0, 3, 5], [], [1], [2, 3, 7, 11, 22], [4, 9]]
ACTIVATIONS = kinds(PlainActivation)
ACTIVATIONS += [{"kind": "leaky_relu", "slope": slope} for slope in (0.2, 2.0)]
ACTIVATIONS += [{"kind": "elu", "alpha": 0.7}, {"kind": "elu", "alpha": 0.7, "scale": 1.3}]
WIDE = {"kind": "uniform", "limit": 0.7}

NORMAL = {"batch_normalization": {"epsilon": 0.01}}
SPATIAL = [
    {"name": "image", "kind": "input", "field": "profile", "shape": [2, 4, 5]},
    {
        "name": "edges",
        "kind": "convolution",
        "filters": 3,
        "kernel": [3, 2],
        "stride": [1, 2],
        "activation": "tanh",
        **NORMAL,
    },
    {
        "name": "same",
        "kind": "convolution",
        "filters": 3,
        "kernel": 3,
        "padding": 1,
        "activation": "relu",
        "skip": "edges",
    },
    {"name": "bright", "kind": "pooling", "function": {"kind": "lrn", "alpha": 0.5, "n": 3}},
    {"name": "largest", "kind": "pooling", "function": "max", "kernel": 3, "stride": 2},
    {
        "name": "means",
        "kind": "pooling",
        "function": "average",
        "kernel": [2, 3],
        "stride": 1,
        "source": "same",
    },
    {
        "name": "code",
        "units": 6,
        "source": ["largest", "means"],
        "activation": "elu",
        "split": True,
        **NORMAL,
    },
    {"name": "other", "units": 6, "source": "means", "activation": "tanh", "skip": "code", "bias": False},
    {"name": "more", "kind": "pooling", "function": "maxout", "source": ["code", "other"]},
    {"name": "alike", "kind": "pooling", "function": "cosine", "source": ["code", "other", "more"]},
    {"name": "dots", "kind": "pooling", "function": "dot_product", "source": ["code", "other"]},
    {
        "name": "next",
        "kind": "output",
        "field": "items",
        "source": ["more", "alike", "dots"],
        "initializer": WIDE,
    },
]


def dataset(path):
    """Sparse items with values, sparse tags without, a dense profile."""
    random = np.random.default_rng(0)
    return dataset_from_lists(
        path,
        ROWS,
        values=[random.uniform(0.5, 3, len(row)).tolist() for row in ROWS],
        width=ITEMS,
        titles=[f"Book “{item}”" for item in range(ITEMS)],
        sparse={"tags": [[0, 6], [1], [], [2, 3], [5]]},
        dense={"profile": random.normal(size=(len(ROWS), PROFILE)).tolist()},
    )


def model_of(layers, data, path, seed=0):
    """A network with its first weights and random biases, as a run."""
    network, training = NetworkSpec.of({"layers": layers}), TrainingSpec(shards=3, seed=seed)
    layout = bind(network, training, data.fields)
    with RunDirectory.begin(path, layout, data) as run:
        counts = {field: data.counts(field) for field in network.counted_fields}
        built = build(layout, Exchange(3), "cpu", counts)
        random = torch.Generator().manual_seed(seed)
        tensors = [(name, trunk.tensor) for name, trunk in built.trunk.items()]
        tensors += [(name, part.weight) for name, wide in built.wide.items() for part in wide.parts.values()]
        for name, tensor in tensors:
            if tensor.dim() == 1:
                tensor.uniform_(*((0.2, 1) if name.endswith("variance") else (-0.5, 0.5)), generator=random)
        run.save_model("model", built, {})
    return Model(run, built)


def random_layers(seed):
    """A network document's layers: one to three inputs, some hidden layers of several sources, one or two
    outputs.
    """
    random = np.random.default_rng(seed)

    def pick(*choices):
        return choices[random.integers(len(choices))]

    items = {"values": pick("use", "ignore"), "popularity_damping": pick(0.0, 0.5), "denoise": 0.3}
    inputs = [
        {
            "name": "items in",
            "kind": "input",
            "field": "items",
            "scale": pick("none", "mean", "rsqrt", "unit"),
            **items,
        }
    ]
    if random.random() < 0.6:
        inputs.append(
            {
                "name": "tags in",
                "kind": "input",
                "field": "tags",
                "scale": pick("none", "unit"),
                "units": pick("auto", TAGS + 4),
            }
        )
    if random.random() < 0.6:
        inputs.append(
            {
                "name": "profile in",
                "kind": "input",
                "field": "profile",
                "scale": pick("none", "mean", "rsqrt", "unit"),
            }
        )
    names = [layer["name"] for layer in inputs]
    first = {"name": "first", "source": names, "units": 6, "dropout": 0.2, "initializer": WIDE}
    second = {
        "name": "second",
        "source": pick(["first"], ["first", names[-1]]),
        "units": 6,
        "initializer": WIDE,
    }
    hidden = [
        {**layer, "activation": pick(*ACTIVATIONS), "bias": bool(random.integers(2))}
        for layer in (first, second)
    ]
    if random.random() < 0.3:
        hidden[1] = {**hidden[1], "source": "first", "weights": {"layer": "third", "transposed": True}}
        hidden.append({"name": "third", "source": "second", "units": 6, "initializer": WIDE})
    last = hidden[-1]["name"]
    tied = {"weights": {"layer": "first", "layer_source": "items in", "transposed": True}, "source": last}
    own = {"source": pick([last], ["first", last]), "initializer": WIDE, "units": pick("auto", ITEMS + 3)}
    outputs = [{"name": "next", "kind": "output", "field": "items", "values": "ignore", **pick(own, tied)}]
    outputs[0] |= {"activation": pick(*ACTIVATIONS), "loss": "l2", "bias": bool(random.integers(2))}
    if random.random() < 0.5:
        outputs[0]["cosine"] = {"temperature": 0.3}
    if random.random() < 0.4:
        outputs.append(
            {"name": "tag", "kind": "output", "field": "tags", "source": "first", "activation": "softmax"}
        )
    return [*inputs, *hidden, *outputs]


def random_fields(seed, num_examples=9):
    """A batch: empty rows, features that stand twice, values of both signs."""
    random = np.random.default_rng(seed)
    rows = [
        random.integers(0, ITEMS, random.integers(0, 8)).tolist() * (1 + row % 2)
        for row in range(num_examples)
    ]
    rows[0] = []
    values = [random.normal(size=len(row)).tolist() for row in rows]
    tags = [random.integers(0, TAGS, random.integers(0, 3)).tolist() for _ in rows]
    profile = torch.from_numpy(random.normal(size=(num_examples, PROFILE)).astype(np.float32))
    return {
        "items": SparseBatch.from_lists(rows, values),
        "tags": SparseBatch.from_lists(tags),
        "profile": profile,
    }


def scores(model, fields, output):
    """float32 [E, L], as the network itself predicts them."""
    with fixed_arithmetic():
        return np.concatenate([each.numpy() for each in layer_values(model.network, fields, output)], axis=1)


def feed(session, fields):
    """What onnxruntime is given for a batch."""
    found = {}
    for wanted in session.get_inputs():
        field, _, kind = wanted.name.partition(".")
        value = fields[field]
        part = {"offsets": "indptr", "indices": "indices", "values": "values"}.get(kind)
        found[wanted.name] = (value if part is None else getattr(value, part)).numpy()
    return found
