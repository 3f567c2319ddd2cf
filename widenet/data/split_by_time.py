"""Splits by time: by the times that the ingest kept, or by the order of sequences."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.buckets import Rows, owners_of
from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import Moment
from widenet.data.manifest import Field, Part, time_column
from widenet.data.selection import Selection, ago, is_date, moment
from widenet.errors import DataError


def selection_by_time(
    dataset: Dataset, field: Field, last: Mapping[Part, int], start: Mapping[Part, Moment]
) -> Selection:
    """Select the entries to move by time or by the order of a sequence.

    Raises:
        DataError: The field has neither times nor an order, or has one of the parts already.
    """
    if field.kind == "dense":
        raise DataError(
            f"{dataset.path}: `heldout_last` cannot divide a dense field; {field.name!r} is one. Name another"
            " `field`."
        )
    needs_times = [f"`{part}_since` or a duration as `{part}_last`" for part in start] or (
        [] if field.kind == "sequence" else [f"`{part}_last`" for part in last]
    )
    if needs_times and not field.has_times:
        rule = f"{needs_times[0]} needs times; field {field.name!r} has none"
        raise DataError(
            f"{dataset.path}: {rule}. Ingest with `time` and `keep_times=True`, or set its items aside in the"
            " ingest."
        )
    relative = {
        f"{part}_since": seconds for part, since in start.items() if (seconds := ago(since)) is not None
    }
    dates = [f"{part}_since" for part, since in start.items() if is_date(since)]
    moments = {part: moment(f"{part}_since", since, 0) for part, since in start.items()}
    is_sequence = field.kind == "sequence"
    selection = Selection(last=last, from_time=moments, sequence=is_sequence, dates=dates, ago=relative)
    check_new(dataset.path, field, selection.divided)
    if dates:
        times = (
            batch.column(time_column(field.name)).flatten().to_numpy() for batch in dataset.record_batches()
        )
        latest = max((float(time.max()) for time in times if len(time)), default=0.0)
        selection.check_seconds(latest, str(dataset.path))
        return selection.resolved(latest)
    return selection


def owners_by_time(batch: pa.RecordBatch, field: Field, selection: Selection) -> np.ndarray:
    """The part of each entry, int64 [Z]: 0 for train, 1 for the first of `selection.divided`, and so on."""
    entries = batch.column(field.name).flatten().to_numpy()
    time = batch.column(time_column(field.name)).flatten().to_numpy() if field.has_times else None
    key = examples_of(batch, field).astype(np.uint64) << np.uint64(32) | entries.astype(np.uint64)
    return owners_of(Rows(key, time=time), selection)


def examples_of(batch: pa.RecordBatch, field: Field) -> np.ndarray:
    """For each entry of the field's train part, its row in the batch, int64 [Z]."""
    return np.repeat(np.arange(batch.num_rows), np.diff(batch.column(field.name).offsets.to_numpy()))


def check_new(source: Path | str, field: Field, parts: Iterable[Part]) -> None:
    """Raise DataError if a field has one of these parts already."""
    for part in parts:
        if part in field.parts:
            raise DataError(
                f"{source}: field {field.name!r} has a {part} part already. Split the dataset that it was"
                " made from."
            )
