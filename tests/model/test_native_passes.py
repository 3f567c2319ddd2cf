"""What a step of the native library keeps."""

import gc
import weakref

import torch

from tests.model.test_wide_loss import document, targets_of
from tests.model.twin import Real, random_batch, sparse
from widenet.model.wide_loss import NativeStep


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
