"""Reading documents: text to models and back, and nothing but DocumentError for whatever else is given."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

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


def test_a_document_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        TrainingSpec.of({}).epochs = 3


def test_a_document_is_read_from_a_file_of_utf_8(tmp_path):
    path = tmp_path / "network.json"
    path.write_text(json.dumps({**DESIGN, "name": "nächstes Buch"}, ensure_ascii=False), encoding="utf-8")
    assert NetworkSpec.read(path).name == "nächstes Buch"
    assert NetworkSpec.read(str(path)).layer("taste").units == 256


def test_a_document_knows_where_it_was_read_and_is_equal_to_the_same_one_read_elsewhere(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    read = TrainingSpec.read(tmp_path / "mine.json")
    assert (read.where, TrainingSpec.of({}).where) == (str(tmp_path / "mine.json"), "training.json")
    assert NetworkSpec.of(DESIGN).where == "network.json"
    assert read == TrainingSpec.of({})
    assert hash(read) == hash(TrainingSpec.of({}))
    assert read != TrainingSpec.of({"epochs": 3})
    assert read.to_json() == TrainingSpec.of({}).to_json()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.read(tmp_path / "no.json")
    assert str(caught.value) == f"{tmp_path / 'no.json'}: no such file. Check the path."


def test_a_directory_is_not_a_document(tmp_path):
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.read(tmp_path)
    assert str(caught.value) == f"{tmp_path} must be a JSON file; got a directory."


def test_bytes_that_are_not_text_are_located(tmp_path):
    path = tmp_path / "n.json"
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.read(path)
    assert str(caught.value) == f"{path}: byte 10 is not UTF-8 text. Save the file as UTF-8."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.json: line 1, column 1: the text is empty. Write a JSON object."),
        (
            '{"epochs": 3,\n "seed" 4}',
            "t.json: line 2, column 9: a colon must stand between a name and its value. Add it.",
        ),
        (
            '{"epochs": 3, "epochs": 4}',
            't.json: the key "epochs" stands twice in one object. Keep one of them.',
        ),
        (
            '{"checkpoints": {"keep_last": 1, "keep_last": 1}}',
            't.json: the key "keep_last" stands twice in one object. Keep one of them.',
        ),
        ('{"l2": NaN}', "t.json: NaN is not a JSON number. Write a finite number, or null for none."),
        (
            '{"l2": -Infinity}',
            "t.json: -Infinity is not a JSON number. Write a finite number, or null for none.",
        ),
        ('{"l2": 1e999}', "t.json: l2 must be a finite number; got Infinity."),
        ("[" * 100_000, "t.json: lists and objects are nested too deeply. Check the file."),
        ("[]", "t.json must be a JSON object with named fields; got []."),
        ("null", "t.json must be a JSON object with named fields; got null."),
    ],
)
def test_text_that_is_no_document_is_refused_in_one_sentence(text, message):
    with pytest.raises(DocumentError) as caught:
        TrainingSpec.parse(text, "t.json")
    assert str(caught.value) == message


@pytest.mark.parametrize("values", [{"epochs": {1, 2}}, {(1, 2): 3}, {"epochs": object()}, {"name": b"x"}])
def test_python_values_that_json_does_not_have_are_refused(values):
    with pytest.raises(DocumentError, match=r"^document must hold plain JSON values: "):
        TrainingSpec.of(values)


def test_a_value_that_contains_itself_is_refused():
    loop = {}
    loop["epochs"] = loop
    with pytest.raises(DocumentError, match="must hold plain JSON values"):
        TrainingSpec.of(loop)


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
        assert "Input should" not in message
        assert "should match" not in message
        assert len(message) < 1000
        return None
    assert model.parse(document.to_json()) == document
    return document


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=600, deadline=None)
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
