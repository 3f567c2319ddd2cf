"""Evaluation: ranking metrics of a network on a set-aside part of a dataset."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.stream import Stream
from widenet.errors import FitError, OptionError
from widenet.metrics.further import BeyondAccuracy, GroupedMetrics, PropensityScored
from widenet.metrics.ranking import Metrics, RankingMetrics, check_ks
from widenet.model.network import Network
from widenet.predict.restrictions import Histories, known_parts, rows_a_block
from widenet.sparse import SparseBatch
from widenet.spec.metric_names import DEFAULT_KS


def evaluate(
    network: Network,
    dataset: Dataset,
    part: Part = "heldout",
    ks: Sequence[int] = DEFAULT_KS,
    output: str | None = None,
    exclude_seen: bool = True,
    advance: Callable[[int], None] | None = None,
    keep_users: bool = False,
    beyond: bool = False,
    groups: bool = False,
    inverse_propensities: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    counts_L: np.ndarray | None = None,
) -> Metrics:
    """Compute the metrics of `widenet.metrics.ranking` over the examples that have entries in `part`.

    The network sees each example's training part and ranks every unit of an output; the entries of `part` are
    the true units. If the input is a sequence, the network sees everything before `part`: for "heldout" the
    validation part too. A unit that occurs several times in `part` counts once.

    Args:
        network: The network to evaluate.
        dataset: Its examples.
        part: A part that was set aside: "validation" or "heldout".
        ks: The list lengths to measure.
        output: Name of the output layer; None if the network has only one.
        exclude_seen: Whether to leave out units in the example's training part; for "heldout", in its
            validation part too.
        advance: Called with the number of examples done since the last call.
        keep_users: Whether to keep the metrics of each user, in `Metrics.users`.
        beyond: Whether to compute the metrics of `widenet.metrics.further` too.
        groups: Whether to compute the means of groups, in `Metrics.groups`; see `widenet.metrics.further`.
        inverse_propensities: Inverse propensity of each unit, float64 [L], to compute psp@k too; see
            `widenet.metrics.further`.
        rows: Rows of the examples to evaluate, int64, ascending, which have entries in `part`; None: all.
        counts_L: How often each unit occurs in training, int64, if the caller has counted it; else None.

    Raises:
        FitError: The dataset lacks the part, or the output's field is dense.
        OptionError: `part` or `ks` cannot be evaluated.
    """
    check_part(part)
    ks = check_ks(ks)
    name = output_name(network, output)
    field = network.outputs[name].spec.field
    rule = f'must predict a sparse field for ranking metrics; "{field}" is dense'
    FitError.require(dataset.field(field).kind != "dense", rule, option="output", value=name)
    counts_L = dataset.counts(field) if counts_L is None else counts_L
    metrics = RankingMetrics(ks, counts_L)
    further: list[BeyondAccuracy | PropensityScored] = []
    if beyond:
        further.append(BeyondAccuracy(ks, counts_L))
    if inverse_propensities is not None:
        further.append(PropensityScored(ks, inverse_propensities))
    grouped = _grouped(dataset, field, part, ks) if groups else None
    longest = min(max(ks), network.outputs[name].width)
    histories = Histories(network, dataset, part)
    network.exchange.at("evaluation")
    for block, truth in truths(dataset, field, part, longest, rows):
        _, units_EK = histories.best(name, block, longest, exclude_seen=exclude_seen, scores=False)
        found = units_EK.cpu().numpy(), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64)
        metrics.add(*found, block if keep_users else None)
        for more in further:
            more.add(*found)
        if grouped is not None:
            grouped.add(*found, block)
        if advance is not None:
            advance(len(block))
    result = metrics.result()
    for more in further:
        result.update(more.result())
    if grouped is not None:
        result.groups = grouped.result()
    return result


def _grouped(dataset: Dataset, field: str, part: Part, ks: Sequence[int]) -> GroupedMetrics:
    """Group the examples that have entries in a part by the number of entries before it."""
    everyone = slice(0, dataset.num_examples)
    rows = np.flatnonzero(dataset.entry_counts(field, everyone, part))
    lengths = np.zeros(len(rows), dtype=np.int64)
    for known in known_parts(dataset, field, part):
        lengths += dataset.entry_counts(field, everyone, known)[rows]
    return GroupedMetrics(ks, dataset.counts(field), rows, lengths)


def truths(
    dataset: Dataset, field: str, part: Part, k: int, rows: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, SparseBatch]]:
    """Yield rows of examples in blocks, with their entries in a part as a batch.

    No entry occurs twice in a row. The size of a block depends on k, the number of units for each example.

    Args:
        dataset: The examples.
        field: The field of the entries.
        part: The part.
        k: Number of units for each example.
        rows: The rows; None: those of all examples that have entries in the part.
    """
    skip_empty = field if rows is None else None
    stream = Stream(
        dataset, [field], rows_a_block(k), seed=0, shuffle=False, part=part, skip_empty=skip_empty, only=rows
    )
    for batch in stream.batches(0):
        truth = batch.fields[field]
        assert isinstance(truth, SparseBatch)
        yield batch.rows, truth.distinct() if dataset.field(field).kind == "sequence" else truth


def output_name(network: Network, name: str | None) -> str:
    """Return the name if it is an output's, or the only output's name for None; otherwise raise FitError."""
    return output_of(list(network.outputs), name)


def output_of(names: Sequence[str], name: str | None) -> str:
    """As `output_name`, for a network whose outputs have these names."""
    if name is None and len(names) == 1:
        return names[0]
    FitError.require(name in names, f"must be one of {', '.join(names)}", option="output", value=name)
    return str(name)


def check_part(part: str) -> None:
    """Raise OptionError for a part that is not set aside from training."""
    rule = "must be validation or heldout"
    OptionError.require(part in ("validation", "heldout"), rule, option="part", value=part)
