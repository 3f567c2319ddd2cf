"""Attention layers against torch's own, and inside a whole step."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from tests.model.definitions import activation
from tests.model.twin import Real
from tests.rows import all_rows
from tests.sequences import EMBEDDED, HISTORY, NEXT, TIED, WIDTH
from widenet.model.layers.attention import EPSILON, attention
from widenet.model.positions import Positions
from widenet.sparse import SparseBatch

SIZES = [5, 5, 3, 1]
HEADS, NUMBERS, NEWEST = 2, 3, 12
FACTS = {"items": SimpleNamespace(kind="sequence", width=WIDTH, min_value=1.0, max_value=1.0)}


def block(**more):
    return {"name": "block", "kind": "attention", "heads": 2, **more}


def tensors():
    """Lively queries, keys and values [N, H, C], vectors of distances [T, H, C], and a gradient."""
    generator, positions = torch.Generator().manual_seed(5), (sum(SIZES), HEADS, NUMBERS)
    shapes = [positions, positions, positions, (NEWEST, HEADS, NUMBERS), positions]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made[:4]], made[4]


def positions_of(sizes):
    """Positions with so many sequences at each time."""
    rows = [[0] * sum(size > rank for size in sizes) for rank in range(sizes[0])]
    return Positions.of(SparseBatch.from_lists(rows), len(sizes), ends_ask=False)


def padded(values_NHC, sizes):
    """Positions as [E, H, T, C], with zeros after the end of each sequence."""
    rows = [values_NHC.new_zeros(sizes[0] - size, *values_NHC.shape[1:]) for size in sizes]
    times = [torch.cat(pair) for pair in zip(values_NHC.split(sizes), rows, strict=True)]
    return torch.stack(times).permute(1, 2, 0, 3)


def of_torch(queries, keys, values, distances, sizes):
    """What torch's attention reads at each position, [N, H, C]."""
    q, k, v = (padded(values, sizes) for values in (queries, keys, values))
    apart = torch.arange(len(sizes))[:, None] - torch.arange(len(sizes))
    mask = torch.where(apart >= 0, 0.0, -torch.inf).to(q)
    if distances is not None:
        vectors = distances.permute(1, 0, 2)[:, apart.clamp_min(0)]
        mask = mask + torch.einsum("ehtc,htsc->ehts", q, vectors) * q.shape[-1] ** -0.5
    read = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return torch.cat([read[:size, :, time] for time, size in enumerate(sizes)])


@pytest.mark.parametrize("is_relative", [True, False])
@pytest.mark.parametrize("sizes", [SIZES, [14], [7, 7], [2] * 4 + [1] * 6], ids=str)
def test_what_is_read_and_all_gradients_are_those_of_torch(sizes, is_relative):
    (own, away), (truth, _) = tensors(), tensors()
    expected = of_torch(*truth[:3], truth[3] if is_relative else None, sizes)
    expected.backward(away)
    projected = torch.stack(own[:3], dim=1)
    found = attention(projected, own[3] if is_relative else None, positions_of(sizes))
    found.backward(away)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for tensor, twin in zip(own[: 3 + is_relative], truth, strict=False):
        torch.testing.assert_close(tensor.grad, twin.grad, rtol=1e-12, atol=1e-12)


ROWS = [[3, 4, 8, 12, 8], [], [1, 1], [7], [0, 12, 0]]
WEIGHTS = torch.tensor([0.5, 2.0, 1.5, 1.0, 3.0])
DOCUMENTS = {
    "relative": [*EMBEDDED, block(), TIED],
    "absolute": [*EMBEDDED, block(positions="absolute", heads=3, feed_forward=5, activation="gelu"), TIED],
    "without positions": [*EMBEDDED, block(positions="none", normalize_output=True), NEXT],
    "the two newest": [{**HISTORY, "last": 2}, EMBEDDED[1], block(), NEXT],
    "stacked, with dropout": [
        *EMBEDDED,
        block(positions="absolute", dropout=0.3),
        block(name="second", positions="none", dropout=0.3, normalize_output=True, skip="item"),
        TIED,
    ],
}


def truth(document, real, positions):
    """The loss of a batch and its gradients by torch's own functions in float64, a sequence at a time."""
    leaves = {name: all_rows(wide).double() for name, wide in real.network.wide.items()}
    leaves |= {name: trunk.tensor.detach().double() for name, trunk in real.network.trunk.items()}
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    newest, total, number = document[0].get("last", 50), 0.0, 0
    for example, (row, weight) in enumerate(zip(ROWS, WEIGHTS.tolist(), strict=True)):
        read = row[:-1][-newest:]
        if not read:
            continue
        found = {"item": leaves["item/history"][read]}
        places = (positions.examples_N == example).nonzero()[:, 0]
        hidden = found["item"]
        for layer in document[2:-1]:
            hidden = _block(layer, hidden, leaves, real.random, places, len(positions.examples_N))
            hidden = sum((found[name] for name in [layer["skip"]]), hidden) if "skip" in layer else hidden
        table = leaves["item/history"] if "weights" in document[-1] else leaves["out"]
        asked = torch.tensor(row[len(row) - len(read) :])
        logits = hidden @ table.T + leaves["out bias"]
        total = total + weight * torch.nn.functional.cross_entropy(logits, asked, reduction="sum")
        number += len(asked)
    loss = total / number
    return loss.item(), dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def _block(layer, x, leaves, random, places, num_positions):
    """A block over one sequence; `places` are its positions among those of the batch."""
    of, (length, units), heads = (lambda name: leaves[f"{layer['name']}/{name}"]), x.shape, layer["heads"]

    def times(name, values):
        return values @ of(name).T + of(f"{name} bias")

    def normalized(name, values):
        return layer_norm(values, (units,), of(f"{name} scale"), of(f"{name} shift"), EPSILON)

    def dropped(name, values):
        share = layer.get("dropout", 0.0)
        if not share:
            return values
        purpose = f"dropout/{layer['name']}/{name}"
        kept = torch.from_numpy(random.kept(purpose, (num_positions, units), share))
        return values * kept[places] / (1 - share)

    kind = layer.get("positions", "relative")
    if kind == "absolute":
        x = x + of("positions")[:length]
    q, k, v = (
        part.view(length, heads, -1) for part in times("projections", normalized("attention", x)).chunk(3, 1)
    )
    vectors = of("positions").view(len(of("positions")), heads, -1) if kind == "relative" else None
    read = of_torch(q, k, v, vectors, [1] * length).reshape(length, units)
    x = x + dropped("attention", times("joined", read))
    spec = SimpleNamespace(kind=layer.get("activation", "relu"))
    inner = activation(spec, times("inner", normalized("feed forward", x)))
    x = x + dropped("feed forward", times("outer", inner))
    return normalized("output", x) if layer.get("normalize_output") else x


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_step_is_that_of_torch_in_float64(name):
    document, batch = DOCUMENTS[name], SparseBatch.from_lists(ROWS)
    real = Real({"layers": document}, {}, FACTS)
    positions = Positions.of(batch, document[0].get("last", 50), ends_ask=True)
    expected, gradients = truth(document, real, positions)
    before = {key: weight.detach().clone() for key, weight in _weights(real.network).items()}
    assert real.step({"items": batch}, WEIGHTS) == pytest.approx(expected, rel=1e-5)
    for key, weight in _weights(real.network).items():
        torch.testing.assert_close(
            weight.double(), before[key].double() - 0.5 * gradients[key], rtol=1e-5, atol=2e-6
        )
        assert gradients[key].abs().max() > 1e-5 or key.endswith("projections bias"), key


def _weights(network):
    found = {name: all_rows(wide) for name, wide in network.wide.items()}
    return found | {name: trunk.tensor.detach() for name, trunk in network.trunk.items()}
