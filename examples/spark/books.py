"""A job for spark-submit: interactions in, recommendations out; all paths are on a common file system.

spark-submit books.py ROWS FOLDER PROCESSES: ROWS are Parquet files with the columns user and item.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import widenet.spark

NETWORK = {
    "name": "next book",
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": 64, "activation": "tanh"},
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "activation": "softmax",
            "loss": "cross_entropy",
        },
    ],
}
TRAINING = {"epochs": 5, "batch_size": 256, "optimizer": {"kind": "adam", "learning_rate": 0.005}}


def main(rows: str, folder: Path, processes: int) -> None:
    """Write a dataset, train, and write recommendations."""
    spark = SparkSession.builder.appName("widenet books").getOrCreate()
    frame = spark.read.parquet(rows)
    widenet.spark.write_dataset(frame, folder / "dataset", user="user", item="item")
    fingerprint = widenet.spark.train(
        NETWORK, TRAINING, folder / "dataset", folder / "run", processes=processes
    )
    recommendations = widenet.spark.predict(frame, folder / "run", user="user", item="item", k=10)
    recommendations.write.parquet((folder / "recommendations").as_uri())
    print(f"Fingerprint {fingerprint}")  # noqa: T201 a job prints
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), int(sys.argv[3]))
