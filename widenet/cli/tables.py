"""Results as text tables."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class _Recommended(Protocol):
    @property
    def item(self) -> str | int: ...
    @property
    def title(self) -> str: ...
    @property
    def score(self) -> float: ...


def metrics_table(metrics: Mapping[str, float], ks: Sequence[int]) -> str:
    """A table with a row for each metric and a column for each k."""
    names = list(dict.fromkeys(name.partition("@")[0] for name in metrics if "@" in name))
    lines = [f"{'':12}" + "".join(f"{'@' + str(k):>10}" for k in ks)]
    lines += [f"{name:12}" + "".join(f"{metrics[f'{name}@{k}']:>10.4f}" for k in ks) for name in names]
    return "\n".join([*lines, f"over {int(metrics['num_examples']):,} users"])


def recommendations_table(rows: Sequence[_Recommended]) -> str:
    """A table of rank, score and title, with the id if it is not the title."""
    lines = []
    for rank, row in enumerate(rows, start=1):
        known_as = "" if row.title == str(row.item) else f"  ({row.item})"
        lines.append(f"{rank:>4}  {row.score:<10.4g}  {row.title}{known_as}")
    return "\n".join(lines)
