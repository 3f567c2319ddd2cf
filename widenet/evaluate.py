"""Ranking metrics of a network on a set-aside part of a dataset."""

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.stream import Stream
from widenet.errors import FitError, OptionError
from widenet.metrics import Metrics, RankingMetrics, check_ks
from widenet.model.network import Network
from widenet.predict.rows import Histories, had, known_parts, rows_a_block
from widenet.predict.top_k import Filter
from widenet.sparse import SparseBatch

DEFAULT_KS = (5, 10, 20, 50, 100)


def evaluate(
    network: Network,
    dataset: Dataset,
    part: Part = "heldout",
    ks: Sequence[int] = DEFAULT_KS,
    output: str | None = None,
    exclude_seen: bool = True,
    advance: Callable[[int], None] | None = None,
) -> Metrics:
    """The metrics of `widenet.metrics` for every k, over the examples that have entries in `part`.

    The network sees each example's training part and ranks every unit of an output; `part` is the truth. Of a
    sequence it sees all that comes before: for "heldout" the validation part too, and what stands in `part`
    several times is one true unit.
    exclude_seen: units in the example's training part are not ranked; for "heldout", those of its validation
    part neither.
    output: the output layer's name; None where the network has one. advance: called with the number of
    examples done. Raises FitError where the dataset lacks the part, OptionError for a part or a k that cannot
    be evaluated.
    """
    check_part(part)
    ks = check_ks(ks)
    name = output_name(network, output)
    field = network.outputs[name].spec.field
    if dataset.field(field).kind == "dense":
        raise FitError(
            f'Ranking metrics need a sparse field; output "{name}" asks for the dense field "{field}".'
        )
    metrics = RankingMetrics(ks, dataset.counts(field))
    longest = min(max(ks), network.outputs[name].width)
    histories = Histories(network, dataset, lambda known: known_parts(dataset, known, part))
    allowed = Filter().within(dataset.field(field).width, network.outputs[name])
    network.exchange.at("evaluation")
    for rows, truth in _truths(dataset, field, part, longest):
        _, units_EK = histories.best(
            name, rows, longest, exclude_seen=exclude_seen, allowed=allowed, scores=False
        )
        metrics.add(units_EK.cpu().numpy(), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64))
        if advance is not None:
            advance(len(rows))
    return metrics.result()


def _truths(dataset: Dataset, field: str, part: Part, k: int) -> Iterator[tuple[np.ndarray, SparseBatch]]:
    """The examples that have entries in a part, as many rows at a time as get k units each, and these
    entries, none twice in a row.
    """
    stream = Stream(dataset, [field], rows_a_block(k), seed=0, shuffle=False, part=part, skip_empty=field)
    for batch in stream.batches(0):
        truth = batch.fields[field]
        assert isinstance(truth, SparseBatch)
        yield batch.rows, truth.distinct() if dataset.field(field).kind == "sequence" else truth


def output_name(network: Network, asked: str | None) -> str:
    """The output layer that is asked for, or the only one; raises FitError."""
    names = list(network.outputs)
    if asked is None and len(names) == 1:
        return names[0]
    if asked not in names:
        got = "has several" if asked is None else f'has no output called "{asked}"'
        raise FitError(f"The network {got}. Name one of its outputs: {', '.join(names)}.")
    return asked


def check_part(part: str) -> None:
    """Raise OptionError for a part that is not set aside from training."""
    set_aside = [name for name in get_args(Part) if name != "train"]
    if part not in set_aside:
        raise OptionError(
            f"part must be one of {', '.join(set_aside)}; got {part!r}. The train part is what the network"
            " learned from."
        )


def evaluate_popularity(
    dataset: Dataset, field: str, part: Part = "heldout", ks: Sequence[int] = DEFAULT_KS
) -> Metrics:
    """The metrics of recommending everybody the most popular items that they have not had: what a model
    must beat.
    """
    check_part(part)
    counts = dataset.counts(field)
    metrics = RankingMetrics(ks, counts)
    ranking = np.argsort(-counts, kind="stable")
    longest = min(max(ks), len(counts))
    for rows, truth in _truths(dataset, field, part, longest):
        seen = had(dataset, field, rows, known_parts(dataset, field, part))
        indptr, indices = seen.indptr.numpy(), seen.indices.numpy()
        candidates = ranking[: longest + int(np.diff(indptr).max())]
        top = np.full((len(rows), longest), -1, dtype=np.int64)
        for row in range(len(rows)):
            fresh = candidates[~np.isin(candidates, indices[indptr[row] : indptr[row + 1]])][:longest]
            top[row, : len(fresh)] = fresh
        metrics.add(top, truth.indptr.numpy(), truth.indices.numpy().astype(np.int64))
    return metrics.result()
