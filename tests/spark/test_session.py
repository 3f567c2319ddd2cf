"""Executors with another environment than the driver's are refused before any work."""

import sys

import pytest

from tests.mistakes import mistake
from widenet.errors import OptionError

pytest.importorskip("pyspark", reason="pyspark is not installed; `make test-spark` installs it")


@pytest.fixture
def executors_with(started_by, tmp_path):
    """Make executors use a Python that finds some metadata of installed distributions first."""

    def use(**versions):
        for name, version in versions.items():
            folder = tmp_path / "first" / f"{name}-{version}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        started_by(f'export PYTHONPATH={tmp_path / "first"}:"$PYTHONPATH"\n')

    return use


@pytest.mark.parametrize("library", ["widenet", "torch"])
def test_another_version_of_a_library_is_refused(library, spark, executors_with, tmp_path):
    from widenet.spark.session import check_executors

    executors_with(**{library: "0.0.1"})
    with mistake(OptionError):
        check_executors(spark, tmp_path)


def test_executors_without_the_libraries_are_refused(spark, tmp_path, monkeypatch):
    from widenet.spark.session import check_executors

    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys._base_executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script))
    with mistake(OptionError):
        check_executors(spark, tmp_path)


def test_a_folder_that_executors_do_not_see_is_refused(spark, tmp_path):
    from widenet.spark.session import check_executors

    with mistake(OptionError, place="scratch"):
        check_executors(spark, tmp_path / "only here" / "scratch")
