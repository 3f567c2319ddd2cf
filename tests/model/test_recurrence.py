"""Recurrent layers inside a whole step, against torch's own."""

from types import SimpleNamespace

import pytest
import torch

from tests.model.twin import Real
from tests.rows import all_rows
from tests.sequences import EMBEDDED, HISTORY, NEXT, TIED, WIDTH, gru
from widenet.sparse import SparseBatch

ROWS = [[3, 4, 8, 12, 8], [], [1, 1], [7], [0, 12, 0]]
WEIGHTS = torch.tensor([0.5, 2.0, 1.5, 1.0, 3.0])
LABEL = {"name": "out", "kind": "output", "field": "label"}
DOCUMENTS = {
    "gru": [HISTORY, gru(), NEXT],
    "lstm": [HISTORY, gru(cell="lstm"), NEXT],
    "the two newest": [{**HISTORY, "last": 2}, gru(), NEXT],
    "tied": [*EMBEDDED, gru(), TIED],
    "stacked": [HISTORY, gru(units=5), gru(name="second", cell="lstm"), NEXT],
    **{
        f"{end}, limited": [HISTORY, {**EMBEDDED[1], "delta_norm": 0.05}, gru(), out]
        for end, out in (("next", NEXT), ("label", LABEL))
    },
    "from the last state": [HISTORY, gru(), LABEL],
    "split": [*EMBEDDED, gru(units=5, split=True), gru(name="second", cell="lstm", split=True), TIED],
    "split over the items": [HISTORY, gru(units=2, split=True), NEXT],
}


def truth(document, network, rows, labels, weights_E):
    """The loss of a batch and its gradients by torch's own layers in float64, a sequence at a time."""
    leaves = {}
    for name, wide in network.wide.items():
        leaves[name] = all_rows(wide).double().requires_grad_()
    for name, trunk in network.trunk.items():
        leaves[name] = trunk.tensor.detach().double().requires_grad_()
    newest, asks_next = document[0].get("last", 50), document[-1].get("predict") == "next"
    losses, counted = [], []
    for row, label, weight in zip(rows, labels, weights_E.tolist(), strict=True):
        read = (row[:-1] if asks_next else row)[-newest:]
        hidden = torch.zeros(1, document[-2]["units"], dtype=torch.float64)
        if read:
            hidden, source = torch.eye(WIDTH, dtype=torch.float64)[read], "history"
            for layer in document[1:-1]:
                into = leaves[f"{layer['name']}/{source}"]
                into = into.T if source == "history" else into
                hidden = hidden @ into.T if layer.get("kind") is None else _along(layer, hidden, into, leaves)
                if "delta_norm" in layer:
                    hidden.register_hook(
                        lambda g, limit=layer["delta_norm"]: g * (limit / (len(rows) * g.norm())).clamp_max(1)
                    )
                source = layer["name"]
        asked = row[len(row) - len(read) :] if asks_next else label
        direct = (hidden if read else hidden[:0]) if asks_next else hidden[-1:]
        table = leaves["item/history"] if "weights" in document[-1] else leaves["out"]
        logits = direct @ table.T + leaves["out bias"]
        losses.append(
            weight
            * torch.nn.functional.cross_entropy(
                logits, torch.tensor(asked, dtype=torch.int64), reduction="sum"
            )
        )
        counted.append(len(asked))
    loss = sum(losses) / sum(counted)
    return loss.item(), dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def _along(layer, values, into, leaves):
    """The states of one sequence by torch's cell, at every position."""
    units, name = layer["units"], layer["name"]
    cell = {"gru": torch.nn.GRUCell, "lstm": torch.nn.LSTMCell}[layer.get("cell", "gru")](
        values.shape[1], units, dtype=torch.float64
    )
    bias = leaves[f"{name} bias"]
    own = (
        torch.nn.functional.pad(bias[3 * units :], (2 * units, 0))
        if layer.get("cell", "gru") == "gru"
        else torch.zeros_like(bias)
    )
    given = {
        "weight_ih": into,
        "weight_hh": leaves[f"{name}/{name}"],
        "bias_ih": bias[: len(into)],
        "bias_hh": own,
    }
    state, found = None, []
    for value in values:
        state = torch.func.functional_call(cell, given, (value[None], state))
        found.append(state if isinstance(state, torch.Tensor) else state[0])
    return torch.cat(found)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_step_is_that_of_torch_in_float64(name):
    document = DOCUMENTS[name]
    facts = {
        "items": SimpleNamespace(kind="sequence", width=WIDTH, min_value=1.0, max_value=1.0),
        "label": SimpleNamespace(kind="sparse", width=4, min_value=1.0, max_value=1.0),
    }
    real = Real({"layers": document}, {}, facts)
    labels = [[number % 4] for number in range(len(ROWS))]
    expected, gradients = truth(document, real.network, ROWS, labels, WEIGHTS)
    before = {key: gradient.clone() for key, gradient in gradients.items()}
    weights = {name: value.detach().clone() for name, value in _weights(real.network).items()}
    loss = real.step(
        {"items": SparseBatch.from_lists(ROWS), "label": SparseBatch.from_lists(labels)}, WEIGHTS
    )
    assert loss == pytest.approx(expected, rel=1e-5)
    for key, weight in _weights(real.network).items():
        torch.testing.assert_close(
            weight.double(), weights[key].double() - 0.5 * before[key], rtol=1e-5, atol=2e-6
        )


def _weights(network):
    found = {name: all_rows(wide) for name, wide in network.wide.items()}
    return found | {name: trunk.tensor.detach() for name, trunk in network.trunk.items()}
