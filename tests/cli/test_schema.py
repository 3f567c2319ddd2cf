"""`widenet schema`: JSON Schema of the two documents."""

import json

import pytest

from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


@pytest.mark.parametrize(("document", "model"), [("network", NetworkSpec), ("training", TrainingSpec)])
def test_it_prints_the_schema_with_every_field_described(document, model, widenet):
    ended = widenet("schema", document)
    schema = json.loads(ended.out)
    assert (ended.status, ended.err) == (0, "")
    assert schema.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    assert schema == model.model_json_schema()
    objects = [schema, *schema["$defs"].values()]
    fields = [(name, field) for one in objects for name, field in one.get("properties", {}).items()]
    assert [name for name, field in fields if "description" not in field and "$ref" not in field] == []


def test_a_misspelt_choice_gets_the_nearest_one(widenet):
    ended = widenet("schema", "netwrok")
    said = (
        "'netwrok' is not one of 'network', 'training', 'space'. Did you mean \"network\"? See"
        " `widenet schema --help`.\n"
    )
    assert (ended.status, ended.err) == (2, f"widenet schema: Invalid value for 'document': {said}")
    assert (
        widenet("schema").err
        == "widenet schema: Missing argument 'document'. Choose from: network, training, space. See"
        " `widenet schema --help`.\n"
    )
