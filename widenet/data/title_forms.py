"""Titles in the forms that searches compare: with accents in one Unicode form, and without accents.

Both are made when somebody first searches, so that later searches read titles once.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ACCENTS = "[\\x{300}-\\x{36f}]+"
"""Accents apart from their letters: those of the alphabets of Europe."""
_MOST_BYTES = 2**28
"""Bytes of titles without accents that are kept; more are made by each search."""


def composed(titles: pa.Array) -> pa.Array:
    """Return titles with accents in one Unicode form: macOS writes "e" and an accent, most others "é"."""
    return pc.utf8_normalize(titles, "NFC")


def without_accents(titles: pa.Array) -> pa.Array:
    """Return titles in which no letter has an accent: "Übermut" is "Ubermut"."""
    apart = pc.utf8_normalize(titles, "NFKD")
    if pc.all(pc.string_is_ascii(apart)).as_py() is not False:
        return apart
    return pc.utf8_normalize(pc.replace_substring_regex(apart, _ACCENTS, ""), "NFC")


class TitleForms:
    """The titles of a vocabulary, chunk by chunk.

    Args:
        chunks: The stored titles.
    """

    def __init__(self, chunks: Sequence[pa.Array]) -> None:
        self._chunks = chunks
        self._is_composed: list[bool] | None = None
        self._plain: list[tuple[np.ndarray, pa.Array]] | None = None

    def composed(self) -> Iterator[pa.Array]:
        """Yield the chunks in the form of `composed`: the stored ones if they have it, as nearly all do."""
        if self._is_composed is None:
            self._is_composed = [
                pc.all(pc.equal(each, composed(each))).as_py() is not False for each in self._chunks
            ]
        for chunk, is_composed in zip(self._chunks, self._is_composed, strict=True):
            yield chunk if is_composed else composed(chunk)

    def plain(self) -> list[tuple[np.ndarray, pa.Array]]:
        """Return, for each chunk, the rows of the titles that have accents, and these titles without them."""
        if self._plain is not None:
            return self._plain
        plain = [*map(_changed, self.composed())]
        if sum(titles.nbytes for _, titles in plain) <= _MOST_BYTES:
            self._plain = plain
        return plain


def _changed(titles: pa.Array) -> tuple[np.ndarray, pa.Array]:
    changed = without_accents(titles)
    differs = pc.fill_null(pc.not_equal(titles, changed), False)
    return np.flatnonzero(differs.to_numpy(zero_copy_only=False)), changed.filter(differs)
