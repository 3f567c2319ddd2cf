"""Terms that are added to logits: from items that occur together, and from EASE."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags, issparse
from torch import Tensor

from benchmarks.piece import Piece
from widenet.sparse import SparseBatch


@dataclass(frozen=True)
class Term:
    """weight * log(1 + s / floor), where s is the sum, or the mean, over a history of a matrix's rows.

    Attributes:
        matrix: [items, items], sparse or dense.
        weight: Factor on the term.
        floor: Sum below which the term is in proportion to it.
        is_mean: Whether s is a mean.
    """

    matrix: csr_matrix | np.ndarray
    weight: float
    floor: float
    is_mean: bool = True

    def of(self, piece: Piece, rows: Tensor) -> Tensor:
        """Return the term of all items for users, float32 [E, items]."""
        history = piece.matrix[rows.numpy()]
        sums = history @ self.matrix
        sums = sums.toarray() if issparse(sums) else sums
        if self.is_mean:
            sums = sums / np.maximum(np.diff(history.indptr), 1)[:, None]
        return torch.from_numpy(self.weight * np.log1p(np.maximum(sums, 0) / self.floor)).float()


def neighbourhood(
    piece: Piece, weight: float, floor: float, neighbours: int, popularity: float, by_user: float = 0.0
) -> Term:
    """Return the neighbourhood term of widenet.

    Args:
        piece: The data.
        weight: As in `widenet.spec.layers.Neighbourhood`, like the next three.
        floor: See there.
        neighbours: See there.
        popularity: See there.
        by_user: A user with n items counts n^-by_user.
    """
    counts = piece.counts.numpy()
    similar = _similar(piece, neighbours, by_user) @ diags((counts / counts.max()) ** popularity)
    return Term(similar.tocsr(), weight, floor)


def ease(piece: Piece, l2: float, weight: float, floor: float) -> Term:
    """Return the logarithm of the scores of EASE: Steck, WWW 2019, equation 8."""
    gram = torch.from_numpy((piece.matrix.T @ piece.matrix).toarray())
    gram.diagonal().add_(l2)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    weights = inverse / -inverse.diagonal()
    return Term(weights.fill_diagonal_(0).numpy(), weight, floor, is_mean=False)


def nearest(piece: Piece, neighbours: int) -> SparseBatch:
    """Return the nearest items of each item, one row each, with values whose sum is 1."""
    similar = _similar(piece, neighbours).T.tocsr()
    means = (diags(1 / np.maximum(similar.sum(axis=1).A1, 1e-9)) @ similar).tocsr()
    columns = (means.indptr.astype(np.int64), means.indices.astype(np.int64), means.data.astype(np.float32))
    return SparseBatch(*map(torch.from_numpy, columns))


def _similar(piece: Piece, neighbours: int, by_user: float = 0.0) -> csr_matrix:
    """Return c_ij / sqrt(n_i n_j) of the nearest i of each item j: the row is i, the column is j."""
    lengths = np.maximum(np.diff(piece.matrix.indptr), 1)
    weighted = (diags(lengths**-by_user) @ piece.matrix).tocsr()
    norms = diags(np.maximum(weighted.sum(axis=0).A1, 1e-12) ** -0.5)
    found = (norms @ (piece.matrix.T @ weighted) @ norms).tocoo()
    order = np.lexsort((found.row, -found.data, found.col))
    order = order[found.row[order] != found.col[order]]
    columns = found.col[order]
    rank = np.arange(len(order)) - np.searchsorted(columns, columns)
    kept = order[rank < neighbours]
    return csr_matrix((found.data[kept], (found.row[kept], found.col[kept])), found.shape)
