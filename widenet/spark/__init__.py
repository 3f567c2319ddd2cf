"""widenet on Spark: datasets from DataFrames, trainings on executors, recommendations as DataFrames."""

from typing import TYPE_CHECKING

from widenet.late import late_names
from widenet.optional import optional

with optional("pyspark", "spark"):
    import pyspark  # noqa: F401 all modules need it

if TYPE_CHECKING:
    from widenet.spark.dataset import write_dataset

_HOME = {"write_dataset": "widenet.spark.dataset:write_dataset"}

__all__ = ["write_dataset"]

__getattr__ = late_names(__name__, _HOME)
