"""One Spark of two executors, each a process of its own, for all tests of this folder."""

import importlib.util
import os
import shutil
import sys
import warnings

import pytest

LACKS = (
    "pyspark is not installed; `make test-spark` installs it"
    if importlib.util.find_spec("pyspark") is None
    else "Spark needs Java, and there is none"
    if shutil.which("java") is None
    else None
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if LACKS:
        pytest.skip(LACKS)
    from pyspark.sql import SparkSession

    chosen = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Spark's own code, about pandas
        session = (
            SparkSession.builder.master("local-cluster[2,1,2048]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "3")
            .config("spark.sql.session.timeZone", "Asia/Tokyo")
            .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
            .getOrCreate()
        )
    yield session
    session.stop()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})
