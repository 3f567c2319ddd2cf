"""Kinds as bare names or as objects, and the JSON Schema that tells editors about both."""

import json
from contextlib import nullcontext

import jsonschema
import pytest

from widenet.errors import DocumentError
from widenet.spec.activations import Activation
from widenet.spec.initializers import Initializer
from widenet.spec.losses import Loss
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import Optimizer, Schedule
from widenet.spec.training import TrainingSpec


def kinds(union):
    return [kind for member in union.__args__ for kind in member.model_fields["kind"].annotation.__args__]


def network(hidden=(), output=()):
    entry = {"name": "in", "kind": "input", "field": "items"}
    return NetworkSpec.of(
        {
            "layers": [
                entry,
                {"name": "h", "units": 3, **dict(hidden)},
                {"name": "o", "kind": "output", "field": "items", **dict(output)},
            ]
        }
    )


def output_of(loss):
    name = loss["kind"] if isinstance(loss, dict) else loss
    return network(output={"activation": "sigmoid" if "cross_entropy" in name else "linear", "loss": loss})


MADE = {
    "activation": (Activation, lambda value: network({"activation": value})),
    "initializer": (Initializer, lambda value: network({"initializer": value})),
    "loss": (Loss, output_of),
    "optimizer": (Optimizer, lambda value: TrainingSpec.of({"optimizer": value})),
    "schedule": (Schedule, lambda value: TrainingSpec.of({"schedule": value})),
}
"""The kinds of each setting, and what makes a document with one."""


@pytest.mark.parametrize(
    ("setting", "kind"), [(setting, kind) for setting, (union, _) in MADE.items() for kind in kinds(union)]
)
def test_a_bare_name_is_its_object_with_defaults(setting, kind):
    _, make = MADE[setting]
    assert make(kind) == make({"kind": kind})
    assert f'"{kind}"' in make(kind).to_json()


def test_a_kind_without_numbers_is_written_as_its_bare_name_and_another_in_full():
    written = json.loads(network({"activation": "tanh", "initializer": "he"}).to_json())["layers"][1]
    assert (written["activation"], written["initializer"]) == ("tanh", {"kind": "he", "scale": 1.0})


LAYERS = [
    {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
    {"name": "taste", "units": 256, "activation": "tanh", "dropout": 0.5},
    {"name": "next", "kind": "output", "field": "items", "activation": "softmax", "loss": "cross_entropy"},
]


@pytest.mark.parametrize(
    ("change", "is_valid"),
    [
        ({}, True),
        ({"activation": {"kind": "elu", "alpha": 2}}, True),
        ({"source": ["history"]}, True),
        ({"source": "history"}, True),
        ({"kind": "hidden"}, True),
        ({"activation": "tahn"}, False),
        ({"units": "4"}, False),
        ({"units": 0}, False),
        ({"activaton": "tanh"}, False),
        ({"dropout": 1}, False),
        ({"kind": "hiden"}, False),
        ({"name": None}, False),
    ],
    ids=str,
)
def test_the_schema_of_networks_takes_what_networks_take(change, is_valid):
    schema = jsonschema.Draft202012Validator(NetworkSpec.model_json_schema())
    document = {"layers": [LAYERS[0], {**LAYERS[1], **change}, LAYERS[2]]}
    assert schema.is_valid(document) == is_valid
    with nullcontext() if is_valid else pytest.raises(DocumentError):
        NetworkSpec.of(document)


@pytest.mark.parametrize("model", [NetworkSpec, TrainingSpec])
def test_every_field_of_a_schema_is_described(model):
    schema = model.model_json_schema()
    for owner, definition in {model.__name__: schema, **schema["$defs"]}.items():
        for name, field in definition.get("properties", {}).items():
            referred = schema["$defs"].get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            assert field.get("description") or referred.get("description"), f"{owner}.{name}"
