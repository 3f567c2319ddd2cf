"""Where Numba is missing, torch's operations take the place of the compiled passes over tiles."""

import pytest
import torch

from tests.model.test_wide_loss import document, name_of, targets_of
from tests.model.twin import assert_step_matches_twin, random_batch, sparse
from widenet.kernels import table
from widenet.model import compiled_passes as compiled_tiles


@pytest.mark.parametrize("kind", ["sparse", "sparse with values"])
@pytest.mark.parametrize(
    ("loss", "activation"),
    [
        ("cross_entropy", "sigmoid"),
        ("cross_entropy", "softmax"),
        ({"kind": "cross_entropy", "targets": "sum"}, "softmax"),
    ],
    ids=name_of,
)
def test_a_step_without_numba_is_that_of_the_dense_twin(loss, activation, kind, monkeypatch):
    monkeypatch.setattr(table, "can_compile", lambda: False)
    monkeypatch.setattr(compiled_tiles.CompiledPasses, "delta", None)
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    assert_step_matches_twin(
        document(loss, activation), {"in": sparse(23), "out": facts}, batch, {"shards": 3}
    )
