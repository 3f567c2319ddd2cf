"""Recommended items as lists and as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from widenet.data.vocabulary import Vocabulary
from widenet.errors import OptionError, nearest
from widenet.optional import installed
from widenet.predict.rows import Block

Format: TypeAlias = Literal["pandas", "polars", "arrow"]
_LARGEST_INT64 = 2**63 - 1
FORMATS = ("pandas", "polars", "arrow")


@dataclass(frozen=True)
class Recommendation:
    """One recommended item: its id, its title (the id where it has none) and its score.

    The id is a number if the ids of the data were, and a text otherwise.
    """

    item: str | int
    title: str
    score: float


@dataclass(frozen=True)
class Answers:
    """R items for E questions, question by question, best first.

    Attributes:
        asked: Who or what was asked for: E names.
        counts: Number of items of each, int64 [E].
        units: Their units, int64 [R].
        scores: float32 or float64 [R].
        names: Vocabulary of the items.
        whole: Whether ids are shown as numbers.
    """

    asked: Sequence[Any]
    counts: np.ndarray
    units: np.ndarray
    scores: np.ndarray
    names: Vocabulary
    whole: bool = False

    @classmethod
    def of_blocks(
        cls, asked: Sequence[Any], blocks: Sequence[Block], names: Vocabulary, whole: bool
    ) -> "Answers":
        """The items of several blocks of recommendations."""
        return cls(
            asked,
            np.concatenate([np.zeros(0, np.int64), *(block.counts for block in blocks)]),
            np.concatenate([np.zeros(0, np.int64), *(block.units for block in blocks)]),
            np.concatenate([np.zeros(0, np.float32), *(block.scores for block in blocks)]),
            names,
            whole,
        )

    def lists(self) -> list[list[Recommendation]]:
        """A list for each question."""
        ids, titles = self.ids(), self.names.titles(self.units)
        scores: list[float] = self.scores.tolist()
        rows = [Recommendation(*row) for row in zip(ids, titles, scores, strict=True)]
        stops = np.cumsum(self.counts)
        return [rows[stop - count : stop] for stop, count in zip(stops, self.counts, strict=True)]

    def shown(self, form: Format | None, is_one: bool, asked: str = "user", item: str = "item") -> Any:
        """A table if its kind is given, otherwise a list for each question, or for the only one."""
        if form is not None:
            return self.table(form, asked, item)
        return self.lists()[0] if is_one else self.lists()

    def ids(self) -> Sequence[str | int]:
        """The ids of the items, R numbers or texts."""
        texts = self.names.ids(self.units)
        return [int(text) for text in texts] if self.whole else texts

    def table(self, form: Format, asked: str, item: str) -> Any:
        """A row for each item, with its rank from 1, and its title if there are titles.

        Args:
            form: The kind of table.
            asked: Name of the column of questions.
            item: Name of the column of items.
        """
        starts = np.cumsum(self.counts) - self.counts
        ranks = np.arange(1, len(self.units) + 1) - np.repeat(starts, self.counts)
        owners = pa.array(np.repeat(np.arange(len(self.counts)), self.counts))
        columns = {asked: _array(self.asked).take(owners), item: _array(self.ids())}
        if self.names.has_titles:
            columns["title"] = pa.array(self.names.titles(self.units), pa.string())
        columns |= {"score": pa.array(self.scores), "rank": pa.array(ranks, pa.int32())}
        return in_format(pa.table(columns), form)


def check_format(form: str | None) -> None:
    """Raise OptionError for an unknown kind of table."""
    if form is not None and form not in FORMATS:
        raise OptionError(
            f"format must be one of {', '.join(FORMATS)}; got {form!r}.{nearest(form, FORMATS)}"
        )


def in_format(table: pa.Table, form: Format) -> Any:
    """Return an Arrow table as a DataFrame of another library, which must be installed."""
    if form == "pandas":
        with installed("pandas"):
            return table.to_pandas()
    if form == "polars":
        with installed("polars"):
            import polars

            return polars.from_arrow(table)
    return table


def _array(names: Sequence[Any]) -> pa.Array:
    """Names as a column: of numbers, or of texts where there is a text."""
    if isinstance(names, pa.Array):
        return names
    if any(isinstance(name, str) for name in names):
        return pa.array([str(name) for name in names], pa.string())
    is_large = any(name > _LARGEST_INT64 for name in names)
    return pa.array(names, pa.uint64() if is_large else pa.int64())
