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
