"""widenet on Spark: datasets from DataFrames, trainings on executors, recommendations as DataFrames."""

from typing import TYPE_CHECKING

from widenet.late_imports import late_names, optional

with optional("pyspark", "spark"):
    import pyspark  # noqa: F401 all modules need it

if TYPE_CHECKING:
    from widenet.spark.dataset_directory import write_dataset
    from widenet.spark.executors import train
    from widenet.spark.predictions import predict

_HOME = {
    "predict": "widenet.spark.predictions:predict",
    "train": "widenet.spark.executors:train",
    "write_dataset": "widenet.spark.dataset_directory:write_dataset",
}

__all__ = ["predict", "train", "write_dataset"]

__getattr__ = late_names(__name__, _HOME)
