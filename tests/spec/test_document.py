"""Reading documents: text to models and back, and nothing but DocumentError for whatever else is given."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DESIGN = {
    "name": "next book",
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": 256, "activation": "tanh", "dropout": 0.5},
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "activation": "softmax",
            "loss": "cross_entropy",
        },
    ],
}
RICH = {
    "layers": [
        {
            "name": "history",
            "kind": "input",
            "field": "items",
            "units": 5000,
            "denoise": 0.3,
            "denoise_rescale": True,
            "popularity_damping": 0.5,
        },
        {"name": "age", "kind": "input", "field": "age", "dropout": 0.1, "scale": "unit"},
        {
            "name": "one",
            "units": 8,
            "source": "history",
            "activation": {"kind": "leaky_relu", "slope": 0.2},
            "initializer": {"kind": "he", "scale": 2},
        },
        {
            "name": "two",
            "units": 8,
            "source": ["one", "age"],
            "sparseness": {"target": 0.2},
            "weight_norm": 2,
            "bias": False,
        },
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "source": "one",
            "predict": "hidden",
            "cosine": {"temperature": 0.05},
            "weights": {"layer": "one", "transposed": True},
            "loss": {"kind": "cross_entropy", "targets": "sum"},
        },
        {
            "name": "label",
            "kind": "output",
            "field": "label",
            "source": "two",
            "activation": {"kind": "elu"},
            "loss": "l2",
            "loss_weight": 3,
        },
    ],
}
TRAINING = {
    "epochs": 3,
    "seed": 2**63 - 1,
    "optimizer": {"kind": "adamw", "weight_decay": 0.1},
    "schedule": {"kind": "cosine", "floor": 0.1},
    "evaluation": {"metric": "recall@5", "stop_after": 3},
    "keep": "best",
    "gradient_norm_limit": 1,
}
GOOD = [(NetworkSpec, DESIGN), (NetworkSpec, RICH), (TrainingSpec, TRAINING), (TrainingSpec, {})]


@pytest.mark.parametrize(("model", "values"), GOOD)
def test_a_document_written_out_reads_as_the_same_document(model, values):
    document = model.of(values)
    text = document.to_json()
    assert model.parse(text) == document
    assert model.parse(text).to_json() == text
    assert text.endswith("}\n")
    assert json.loads(text).keys() == model.model_fields.keys()


def test_the_numbers_at_the_edges_of_float32_are_welcome():
    for number in (3.4028234663852886e38, 1.1754943508222875e-38, 0.0, 0):
        assert TrainingSpec.of({"l2": number}).l2 == number


def test_a_document_knows_where_it_was_read_and_is_equal_to_the_same_one_read_elsewhere(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    read = TrainingSpec.read(tmp_path / "mine.json")
    assert (read.where, TrainingSpec.of({}).where) == (str(tmp_path / "mine.json"), "training.json")
    assert NetworkSpec.of(DESIGN).where == "network.json"
    assert read == TrainingSpec.of({})
    assert hash(read) == hash(TrainingSpec.of({}))
    assert read != TrainingSpec.of({"epochs": 3})
    assert read.to_json() == TrainingSpec.of({}).to_json()


NAMES = """
name kind input hidden output source units auto layers weights layer history taste next field adam
optimizer learning_rate loss l2 softmax activation cosine transposed schedule evaluation keep best denoise
"""
WORDS = st.sampled_from(NAMES.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)


def read_or_refused(model, values):
    """The document, or None after a DocumentError of one decent sentence."""
    try:
        document = model.of(values, "d.json")
    except DocumentError as error:
        message = str(error)
        assert message.startswith("d.json")
        assert message.endswith((".", "?"))
        assert len(message) < 1000
        return None
    assert model.parse(document.to_json()) == document
    return document


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_whatever_is_given_is_a_document_or_a_document_error(values):
    for model in (NetworkSpec, TrainingSpec):
        read_or_refused(model, values)


def places(value, path=()):
    """The path of every value inside some JSON values."""
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_a_good_document_with_something_changed_is_a_document_or_a_document_error(data):
    model, good = data.draw(st.sampled_from(GOOD))
    values = copy.deepcopy(good)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(sorted(places(values), key=str)))
        owner = values
        for key in path[:-1]:
            owner = owner[key]
        target = owner[path[-1]] if path else values
        change = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "add" and isinstance(target, dict):
            target[data.draw(WORDS | st.text(max_size=3))] = data.draw(VALUES)
        elif change == "add" and isinstance(target, list):
            target.append(data.draw(VALUES | st.just(copy.deepcopy(target[0]) if target else None)))
        elif change == "remove" and path:
            del owner[path[-1]]
        elif path:
            owner[path[-1]] = data.draw(VALUES)
    read_or_refused(model, values)
