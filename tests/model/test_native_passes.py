"""Without the native library, torch's operations take the place of its passes over tiles."""

import gc
import weakref

import pytest
import torch

from tests.model.test_wide_loss import document, name_of, targets_of
from tests.model.twin import Real, assert_step_matches_twin, random_batch, sparse
from widenet.kernels import native
from widenet.model.wide_loss import NativeStep


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
def test_a_step_without_the_library_is_that_of_the_dense_twin(loss, activation, kind, monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(NativeStep, "run", None)
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    assert_step_matches_twin(
        document(loss, activation), {"in": sparse(23), "out": facts}, batch, {"shards": 3}
    )


def test_what_a_step_keeps_is_free_when_it_ends(monkeypatch):
    made, init = [], NativeStep.__init__

    def noted(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made.append(weakref.ref(self))

    monkeypatch.setattr(NativeStep, "__init__", noted)
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of("sparse", generator, 7, 37, "cross_entropy")
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    gc.disable()
    try:
        Real(document("cross_entropy", "softmax"), {}, {"in": sparse(23), "out": facts}).step(batch, None)
        assert [own() for own in made] == [None]
    finally:
        gc.enable()
