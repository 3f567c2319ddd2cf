"""What a network document may ask for, held against the dense twin; and what a step must not do."""

import pytest
import torch

from tests.model.twin import Real, assert_step_matches_twin, dense_field, random_batch, snapshot, sparse
from widenet.sparse import SparseBatch

WIDTH = 29


def items(values=False, num_examples=9, seed=3, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    return random_batch(
        generator,
        num_examples,
        width,
        7,
        (lambda n: 0.2 + torch.rand(n, generator=generator)) if values else None,
    )


def numbers(width, num_examples=9, seed=4):
    return torch.randn(num_examples, width, generator=torch.Generator().manual_seed(seed))


def network(hidden=(), output=(), entry=()):
    """in -> h -> out over the field "items", with other settings."""
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", **dict(entry)},
            {"name": "h", "units": 6, "activation": "tanh", **dict(hidden)},
            {"name": "out", "kind": "output", "field": "items", **dict(output)},
        ]
    }


FIELDS = {"items": sparse(WIDTH)}
TIED = {"weights": {"layer": "h", "transposed": True}}
DEEP = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 6, "activation": "tanh"},
        {"name": "mid", "units": 5, "activation": "gelu"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}
TWO_TOWERS = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "age", "kind": "input", "field": "age"},
        {"name": "h", "units": 6, "source": "in", "activation": "tanh"},
        {"name": "mix", "units": 5, "source": ["h", "age", "in"], "activation": "silu"},
        {
            "name": "out",
            "kind": "output",
            "field": "items",
            "source": ["mix", "h", "age"],
            "loss_weight": 0.7,
        },
        {
            "name": "label",
            "kind": "output",
            "field": "label",
            "source": "mix",
            "activation": "sigmoid",
            "loss_weight": 2.5,
            "bias": False,
        },
    ]
}
TOWER_FIELDS = {**FIELDS, "age": dense_field(3), "label": sparse(4)}
SHARED_INPUTS = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "wish", "kind": "input", "field": "wishes", "scale": "rsqrt"},
        {"name": "h", "units": 6, "source": "in", "activation": "tanh"},
        {"name": "g", "units": 6, "source": "wish", "activation": "relu", "weights": {"layer": "h"}},
        {"name": "out", "kind": "output", "field": "items", "source": ["h", "g"]},
    ]
}
SHARED_OUTPUTS = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 6, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items", "source": "h", "bias": False},
        {
            "name": "wish",
            "kind": "output",
            "field": "wishes",
            "source": "h",
            "activation": "sigmoid",
            "weights": {"layer": "out"},
        },
    ]
}
SHARED_TRUNK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 6, "activation": "tanh"},
        {"name": "down", "units": 4, "activation": "tanh"},
        {"name": "up", "units": 6, "activation": "tanh", "weights": {"layer": "down", "transposed": True}},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}
SHARED_TWICE = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 6, "activation": "tanh"},
        {"name": "a", "units": 5, "activation": "tanh", "source": "h"},
        {"name": "b", "units": 5, "activation": "relu", "source": "a"},
        {
            "name": "both",
            "units": 5,
            "source": ["h", "a", "b"],
            "weights": [{"layer": "b", "source": "b"}, {"layer": "a", "source": "h"}],
        },
        {"name": "out", "kind": "output", "field": "items"},
    ]
}
BATCH = {
    "items": items(),
    "wishes": items(seed=8),
    "age": numbers(3).index_fill(0, torch.tensor([4]), 0.0),
    "label": SparseBatch.from_lists([[0], [], [1, 3], [2], [0, 1, 2, 3], [1], [], [2], [3]]),
}
WISHES = {**FIELDS, "wishes": sparse(WIDTH)}

SHAPES = {
    "plain": (network(), FIELDS),
    "tied": (network(output=TIED), FIELDS),
    "tied the other way round": (network(hidden={"weights": {"layer": "out", "transposed": True}}), FIELDS),
    "deep": (DEEP, FIELDS),
    "several sources and outputs": (TWO_TOWERS, TOWER_FIELDS),
    "two inputs that share a weight": (SHARED_INPUTS, WISHES),
    "two outputs that share a weight": (SHARED_OUTPUTS, WISHES),
    "a trunk weight used both ways": (SHARED_TRUNK, FIELDS),
    "a layer that shares the weights of two": (SHARED_TWICE, FIELDS),
    "without biases": (network({"bias": False}, {"bias": False}), FIELDS),
    "room for units to come": (network({}, {"units": 37}, {"units": 41}), FIELDS),
    "cosine": (network(output={"cosine": {"temperature": 0.2, "prediction_temperature": 0.3}}), FIELDS),
    "cosine, tied, without bias": (
        network(output={"cosine": {"temperature": 0.5}, "bias": False, "activation": "sigmoid", **TIED}),
        FIELDS,
    ),
    "softmax inside": (network({"activation": "softmax"}), FIELDS),
    "linear_max inside": (network({"activation": "linear_max"}), FIELDS),
    "sparseness": (network({"activation": "sigmoid", "sparseness": {"target": 0.3, "weight": 1.7}}), FIELDS),
    "dropout": (network({"dropout": 0.4}), FIELDS),
    "dropout and sparseness": (network({"activation": "sigmoid", "dropout": 0.4, "sparseness": {}}), FIELDS),
}
TRAININGS = {
    "no penalty": {},
    "a tight norm limit": {"gradient_norm_limit": 0.05},
    "a wide norm limit": {"gradient_norm_limit": 1e6},
    "l2": {"l2": 0.3},
    "8 shards, l2 and a norm limit": {"shards": 8, "l2": 0.1, "gradient_norm_limit": 0.3},
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize(("document", "fields"), SHAPES.values(), ids=SHAPES)
def test_a_step_of_every_shape_of_network_is_that_of_the_dense_twin(document, fields, training):
    weights_E = torch.linspace(0.2, 2, 9)
    assert_step_matches_twin(document, fields, BATCH, training, weights_E)


@pytest.mark.parametrize(
    "training", [{}, {"gradient_norm_limit": 0.05, "l2": 0.3}], ids=["plain", "limit and l2"]
)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (document, _) in SHAPES.items()
        if any("weights" in layer for layer in document["layers"])
    ],
)
def test_a_shared_gradient_of_mean_divides_by_the_number_of_sharers(name, training):
    document, fields = SHAPES[name]
    assert_step_matches_twin(
        {**document, "shared_gradient": "mean"}, fields, BATCH, training, torch.linspace(0.2, 2, 9)
    )


@pytest.mark.parametrize("document", [network(), network(output=TIED), DEEP])
def test_l1_pulls_every_touched_weight_towards_zero(document):
    everything = SparseBatch.from_lists([list(range(WIDTH)), [1, 2], [3]])
    assert_step_matches_twin(document, FIELDS, {"items": everything}, {"l1": 0.02, "l2": 0.05})


LIMITS = {
    "of an output": network(output={"weight_norm": 0.4}),
    "of a cosine output": network(output={"weight_norm": 0.4, "cosine": {}}),
    "of a sparse input's columns": network(hidden={"weight_norm": 0.7}),
    "of the trunk": {
        "layers": [
            {**layer, "weight_norm": 0.3} if layer["name"] == "mid" else layer for layer in DEEP["layers"]
        ]
    },
    "of a tied pair, by columns": network(hidden={"weight_norm": 0.7}, output=TIED),
    "of a tied pair, by rows": network(
        hidden={"weights": {"layer": "out", "transposed": True}}, output={"weight_norm": 0.4}
    ),
    "of each source": {
        "layers": [
            {**layer, "weight_norm": 0.5} if layer["name"] == "mix" else layer
            for layer in TWO_TOWERS["layers"]
        ]
    },
}


@pytest.mark.parametrize("document", LIMITS.values(), ids=LIMITS)
def test_a_weight_norm_shortens_what_is_too_long_and_nothing_else(document):
    real, _ = assert_step_matches_twin(document, TOWER_FIELDS, BATCH)
    limited = next(layer for layer in real.spec.layers if getattr(layer, "weight_norm", None))
    lengths = torch.cat(
        [
            w.norm(dim=0)
            for (name, end), w in snapshot(real.network).items()
            if name == limited.name and end != "bias"
        ]
    )
    assert lengths.max() <= limited.weight_norm * (1 + 1e-6)
    assert bool((lengths > limited.weight_norm * 0.999999).any())


@pytest.mark.parametrize("kept_values", ["use", "ignore"])
@pytest.mark.parametrize(
    "output",
    [
        {},
        {"activation": "sigmoid"},
        {"activation": "sigmoid", **TIED},
        {"loss": {"kind": "cross_entropy", "targets": "sum"}},
    ],
)
@pytest.mark.parametrize("predict", ["all", "hidden"])
def test_denoise_hides_targets_from_the_input_and_asks_for_them(predict, output, kept_values):
    generator = torch.Generator().manual_seed(2)
    batch = random_batch(generator, 9, WIDTH, 7, lambda n: 0.2 + 0.8 * torch.rand(n, generator=generator))
    document = network(entry={"denoise": 0.5, "values": kept_values}, output={"predict": predict, **output})
    assert_step_matches_twin(document, {"items": sparse(WIDTH, 0, 1)}, {"items": batch})


@pytest.mark.parametrize(
    "rows",
    [[[]], [[], []], [[4]], [list(range(WIDTH))]],
    ids=["one empty", "two empty", "one of one", "all units"],
)
@pytest.mark.parametrize(
    "document", [network(), network(output=TIED), network(output={"activation": "sigmoid"})]
)
def test_smallest_and_fullest_batches_are_right(document, rows):
    batch = {"items": SparseBatch.from_lists(rows)}
    if sum(map(len, rows)) or document["layers"][2].get("activation"):
        assert_step_matches_twin(document, FIELDS, batch)
    else:
        assert Real(document, {}, FIELDS).step(batch) == 0.0


@pytest.mark.parametrize("output", [{}, TIED])
def test_an_example_without_a_direction_pulls_nothing_under_cosine(output):
    document = network({"activation": "linear"}, {"field": "wishes", "cosine": {}, **output})
    real = Real(document, {}, WISHES)
    real.network.trunk["h bias"].tensor.detach().zero_()
    before = snapshot(real.network)
    real.step(
        {"items": SparseBatch.from_lists([[], [1, 2]]), "wishes": SparseBatch.from_lists([[3], [1, 2]])}
    )
    change = max(float((after - before[key]).abs().max()) for key, after in snapshot(real.network).items())
    assert 0 < change < 10
