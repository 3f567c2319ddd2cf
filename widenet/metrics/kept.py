"""The metrics of each user in a run directory, so that reports compare runs without ranking again.

`evaluations/PART-DIGEST.arrow` has a row for each user and a float32 column for each metric; the JSON file
beside it says of what they are, and has the SHA-256 of the table.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, FiniteFloat

from widenet.data.manifest import sha256_of
from widenet.data.vocabulary import open_table
from widenet.errors import DataError
from widenet.metrics.ranking import Metrics, UserMetrics
from widenet.stores.durable import appearing_together

FOLDER = "evaluations"
"""The folder in a run directory."""

_ROW = "row"
_NUM_EXAMPLES = "num_examples"


@dataclass(frozen=True)
class Evaluated:
    """Of what an evaluation is; two evaluations of the same can be compared.

    Attributes:
        part: The part of the dataset.
        dataset: Digest of the dataset.
        field: The field of the output.
        exclude_seen: Whether the recommendations left out known items.
    """

    part: str
    dataset: str
    field: str
    exclude_seen: bool


@dataclass(frozen=True)
class KeptEvaluation:
    """An evaluation in a run directory.

    Attributes:
        path: The table.
        sha256: SHA-256 of the table.
        evaluated: Of what it is.
        fingerprint: Fingerprint of the weights that were evaluated.
        metrics: The means by name, finite, and "num_examples", a whole number.
        baselines: The means of the baselines that were measured with it, by name.
    """

    path: Path
    sha256: str
    evaluated: Evaluated
    fingerprint: str
    metrics: dict[str, float] = field(hash=False)
    baselines: dict[str, dict[str, float]] = field(hash=False, default_factory=dict)

    def title(self, examples: str) -> str:
        """Return the part and the number of its examples, which people call `examples`."""
        seen = "" if self.evaluated.exclude_seen else ", seen items included"
        return f"{self.evaluated.part}, {int(self.metrics[_NUM_EXAMPLES]):,} {examples}{seen}"

    def read(self) -> Metrics:
        """Return the means with the metrics of each user; raises DataError if the table is damaged."""
        table = open_table(self.path, "table of an evaluation", self.sha256)
        names = tuple(name for name in table.column_names if name != _ROW)
        is_sound = (
            names
            and set(names) <= set(self.metrics)
            and table.schema.types == [pa.int64(), *(pa.float32() for _ in names)]
            and not any(column.null_count for column in table.columns)
            and table.num_rows == self.metrics[_NUM_EXAMPLES]
        )
        rule = f"must have the column {_ROW}, and a float32 column and a mean for each metric"
        DataError.require(is_sound, rule, place=self.path)
        metrics = Metrics(self.metrics)
        values = np.stack([table[name].to_numpy() for name in names], axis=1)
        metrics.users = UserMetrics(names, table[_ROW].to_numpy(), values)
        return metrics


class _Facts(BaseModel):
    """The JSON file beside the table."""

    model_config = ConfigDict(strict=True)
    part: str
    dataset: str
    field: str
    exclude_seen: bool
    fingerprint: str
    metrics: dict[str, FiniteFloat]
    baselines: dict[str, dict[str, FiniteFloat]] = {}
    sha256: str


def keep(run: Path, evaluated: Evaluated, fingerprint: str, metrics: Metrics) -> None:
    """Write an evaluation that has the metrics of each user; replaces an earlier one of the same part.

    Args:
        run: The run directory.
        evaluated: Of what it is.
        fingerprint: Fingerprint of the weights.
        metrics: The evaluation.

    Raises:
        OSError: It cannot be written.
    """
    users = metrics.users
    assert users is not None, "the evaluation keeps the metrics of each user"
    columns = {_ROW: users.rows} | dict(zip(users.names, np.ascontiguousarray(users.values.T), strict=True))
    table = pa.table(columns)
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    name = f"{evaluated.part}-{evaluated.dataset[:12]}"
    with appearing_together([folder / f"{name}.arrow", folder / f"{name}.json"]) as (data, facts):
        with pa.OSFile(str(data), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        found = _Facts(
            **asdict(evaluated),
            fingerprint=fingerprint,
            metrics=metrics,
            baselines={name: dict(own) for name, own in metrics.baselines.items()},
            sha256=sha256_of(data),
        )
        facts.write_text(f"{found.model_dump_json(indent=2)}\n", encoding="utf-8")


def kept_evaluations(run: Path) -> list[KeptEvaluation]:
    """Return the evaluations in a run directory, without reading their tables; raises DataError."""
    return [_read(path) for path in sorted((run / FOLDER).glob("*.json"))]


def _read(path: Path) -> KeptEvaluation:
    try:
        facts = _Facts.model_validate_json(path.read_bytes())
        if not (facts.metrics[_NUM_EXAMPLES].is_integer() and facts.metrics[_NUM_EXAMPLES] >= 1):
            raise ValueError(_NUM_EXAMPLES)
    except (ValueError, KeyError, OSError) as error:
        raise DataError("is damaged", place=path) from error
    evaluated = Evaluated(facts.part, facts.dataset, facts.field, facts.exclude_seen)
    table = path.with_suffix(".arrow")
    return KeptEvaluation(table, facts.sha256, evaluated, facts.fingerprint, facts.metrics, facts.baselines)
