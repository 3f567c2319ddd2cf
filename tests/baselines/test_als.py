"""ALS against the recommendations of `implicit` itself."""

import sys

import numpy as np
import pytest

from tests.baselines.conftest import HISTORY, WIDTH
from widenet.baselines import als as module
from widenet.errors import OptionError
from widenet.sparse import SparseBatch


def test_lists_are_those_of_implicit(monkeypatch):
    pytest.importorskip("implicit", reason="implicit is in the extra `benchmark`", exc_type=ImportError)
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    monkeypatch.setattr(module, "FACTORS", 4)
    history = SparseBatch.from_lists(HISTORY)
    found = module.als(history, WIDTH)(history, history, 5)
    matrix = csr_matrix(
        (np.ones(history.num_entries, np.float32), history.indices.numpy(), history.indptr.numpy()),
        shape=(len(HISTORY), WIDTH),
    )
    model = AlternatingLeastSquares(factors=4, iterations=module.ITERATIONS, num_threads=1, random_state=0)
    model.fit(matrix, show_progress=False)
    items, _ = model.recommend(np.arange(len(HISTORY)), matrix, N=5, recalculate_user=True)
    assert (found == items).mean() > 0.95  # scores may round differently


def test_without_implicit_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with pytest.raises(OptionError, match="pip install implicit"):
        module.als(SparseBatch.from_lists([[0]]), 1)
