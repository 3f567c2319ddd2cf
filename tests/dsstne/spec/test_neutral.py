"""The settings that stand for DSSTNE's arithmetic."""

import pytest

from widenet.dsstne.spec.neutral import with_settings
from widenet.spec.network import NetworkSpec

IN = {"name": "in", "kind": "input", "field": "items"}
OUT = {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid"}
TIED = {**OUT, "weights": {"layer": "h", "transposed": True}}


def network(*hidden, out=OUT, **more):
    return NetworkSpec.of(with_settings({"layers": [IN, *hidden, out], **more}))


@pytest.mark.parametrize("activation", ["sigmoid", {"kind": "elu", "alpha": 2.0}, "gelu"])
def test_layers_get_dsstnes_settings(activation):
    hidden = {"name": "h", "units": 3, "activation": activation, "dropout": 0.5, "sparseness": {}}
    plain = {"name": "i", "units": 3, "activation": activation}
    found = network(hidden, plain)
    assert found.optimizer.model_dump() == {"floor": 1e-9, "step_offset": 1}
    forms = ["mask" if activation == "gelu" else "rest", "mask"]
    assert [layer.dropout_form for layer in found.hidden] == forms
    assert (found.hidden[0].sparseness.after_dropout, found.hidden[0].sparseness.pull_outside) == (True, True)
    assert found.shared_gradient == "sum"
    assert NetworkSpec.parse(found.to_json()) == found


def test_layers_that_share_weights_move_them_by_the_mean():
    hidden = {"name": "h", "units": 3, "activation": "linear", "bias": False}
    assert network(hidden, out=TIED).shared_gradient == "mean"


def test_settings_that_the_document_has_stay():
    hidden = {"name": "h", "units": 3, "dropout": 0.5, "sparseness": {"pull_outside": False}}
    found = network(hidden, optimizer={"floor": 1e-4})
    assert found.optimizer.model_dump() == {"floor": 1e-4, "step_offset": None}
    assert found.hidden[0].sparseness.pull_outside is False
