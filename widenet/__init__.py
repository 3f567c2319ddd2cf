"""Neural networks with sparse and very wide input and output layers."""

from typing import TYPE_CHECKING

from widenet.late_imports import late_names

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.data.describe import describe
    from widenet.data.extreme import ingest_extreme
    from widenet.data.ingest import ingest
    from widenet.data.lists import dataset_from_lists
    from widenet.data.split import split
    from widenet.errors import WidenetError
    from widenet.knn.neighbours import BatchedNeighbours, Neighbours
    from widenet.report.listing import list_runs
    from widenet.report.write import write_report
    from widenet.runs import Model, train
    from widenet.runs.model import compare
    from widenet.runs.quantizing import quantize
    from widenet.runs.training import fit
    from widenet.sparse import SparseBatch
    from widenet.spec.network import NetworkSpec as Network
    from widenet.spec.training import TrainingSpec as Training
    from widenet.tuning.tune import tune

_HOME = {
    "BatchedNeighbours": "widenet.knn.neighbours:BatchedNeighbours",
    "Dataset": "widenet.data.dataset:Dataset",
    "Model": "widenet.runs:Model",
    "Neighbours": "widenet.knn.neighbours:Neighbours",
    "Network": "widenet.spec.network:NetworkSpec",
    "SparseBatch": "widenet.sparse:SparseBatch",
    "Training": "widenet.spec.training:TrainingSpec",
    "WidenetError": "widenet.errors:WidenetError",
    "compare": "widenet.runs.model:compare",
    "dataset_from_lists": "widenet.data.lists:dataset_from_lists",
    "describe": "widenet.data.describe:describe",
    "fit": "widenet.runs.training:fit",
    "ingest": "widenet.data.ingest:ingest",
    "ingest_extreme": "widenet.data.extreme:ingest_extreme",
    "list_runs": "widenet.report.listing:list_runs",
    "quantize": "widenet.runs.quantizing:quantize",
    "split": "widenet.data.split:split",
    "train": "widenet.runs:train",
    "tune": "widenet.tuning.tune:tune",
    "write_report": "widenet.report.write:write_report",
}

__all__ = [
    "BatchedNeighbours",
    "Dataset",
    "Model",
    "Neighbours",
    "Network",
    "SparseBatch",
    "Training",
    "WidenetError",
    "compare",
    "dataset_from_lists",
    "describe",
    "fit",
    "ingest",
    "ingest_extreme",
    "list_runs",
    "quantize",
    "split",
    "train",
    "tune",
    "write_report",
]


__getattr__ = late_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
