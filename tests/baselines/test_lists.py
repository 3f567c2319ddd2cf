"""Which items of a row of scores are its best ones."""

import numpy as np
import torch

from widenet.baselines.evaluated_lists import best_of_dense
from widenet.sparse import SparseBatch


def test_of_equal_scores_the_lower_item_comes_first_and_what_is_known_never():
    generator = np.random.default_rng(3)
    scores = generator.integers(-1, 3, size=(50, 400)).astype(np.float32)
    known = [sorted(generator.choice(400, size=20, replace=False).tolist()) for _ in range(49)] + [
        [*range(396)]
    ]
    expected = []
    for row, own in zip(scores, known, strict=True):
        best = sorted(set(range(400)) - set(own), key=lambda item, row=row: (-row[item], item))[:30]
        expected.append(best + [-1] * (30 - len(best)))
    found = best_of_dense(torch.from_numpy(scores), SparseBatch.from_lists(known), 30)
    assert found.tolist() == expected
