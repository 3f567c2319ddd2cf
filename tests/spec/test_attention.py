"""The rules of attention layers."""

import pytest

from tests.sequences import EMBEDDED, TIED, attention
from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec


def test_an_attention_layer_has_one_source():
    layers = [*EMBEDDED, attention(name="first"), attention(source=["item", "first"]), TIED]
    sentence = "source of an attention layer must be one layer; got 2. Add them up in a hidden layer first."
    with pytest.raises(DocumentError) as caught:
        NetworkSpec.of({"layers": layers}, "network.json")
    assert str(caught.value) == f"network.json: layers[3].{sentence}"


def test_nobody_shares_its_weights():
    above = {"name": "above", "units": 6, "weights": {"layer": "state"}}
    with pytest.raises(
        DocumentError, match='"state", an attention layer, whose weights serve no other layer'
    ):
        NetworkSpec.of({"layers": [*EMBEDDED, attention(), above, TIED]}, "network.json")
