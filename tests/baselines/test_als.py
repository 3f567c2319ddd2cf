"""ALS against the recommendations of `implicit` itself."""

import sys

import numpy as np
import pytest

from tests.baselines.conftest import HISTORY, WIDTH
from tests.mistakes import mistake
from widenet.baselines import methods as module
from widenet.errors import OptionError
from widenet.sparse import SparseBatch


def test_lists_are_those_of_implicit(monkeypatch):
    pytest.importorskip("implicit", reason="implicit is in the extra `benchmark`", exc_type=ImportError)
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    monkeypatch.setattr(module, "num_factors", lambda *_: 4)
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


@pytest.mark.parametrize(
    ("users", "items", "factors"),
    [(10**6, 10**7, 128), (2048, 2048, 128), (260, 180, 11), (180, 260, 11), (20, 10**6, 4)],
)
def test_small_data_gets_few_factors(users, items, factors):
    """With 128 for 180 items, ALS was behind popularity."""
    assert module.num_factors(users, items) == factors


def test_without_implicit_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with mistake(OptionError):
        module.als(SparseBatch.from_lists([[0]]), 1)
