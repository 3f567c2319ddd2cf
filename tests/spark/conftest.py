"""One Spark of two executors, each a process of its own, for all tests of this folder."""

import importlib.util
import os
import shutil
import sys
import warnings

import pytest

from tests.stores.conftest import servers, store  # noqa: F401 fixtures

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


@pytest.fixture
def started_by(spark, tmp_path, monkeypatch):
    """Let executors start this Python by a script that begins with some lines of a shell."""

    def use(lines):
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\n{lines}exec {sys.executable} "$@"\n')
        script.chmod(0o755)
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script))

    return use


@pytest.fixture
def caches(started_by, store, tmp_path):  # noqa: F811
    """Give executors the store's variables, and each a cache of its own; returns the folder of the caches."""
    folder = tmp_path / "caches"
    variables = "".join(f"export {name}='{value}'\n" for name, value in store.environment.items())
    started_by(f"{variables}export WIDENET_CACHE={folder}/$(basename $PWD)\n")
    return folder
