"""The Spark session, and what its executors must have in common with the driver."""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from widenet.errors import OptionError

_REMEDY = "Give driver and executors the same environment, such as one archive in `spark.archives`."
_LIBRARIES = ("pyarrow", "torch", "widenet")
_SAME = ("torch", "widenet")
"""Libraries of which another version may compute other bits."""


def session_of(df: DataFrame) -> SparkSession:
    """The session of a DataFrame; raises OptionError for another kind of table, or under Spark Connect."""
    if not isinstance(df, DataFrame):
        raise OptionError(f"df must be a Spark DataFrame; got {type(df).__name__}. Read it with Spark.")
    if is_remote():
        raise OptionError(
            "widenet needs a Spark session in the driver; this one is of Spark Connect. Start"
            " one by `SparkSession.builder.master(...)`."
        )
    return df.sparkSession


def shared_path(name: str, path: str | Path) -> Path:
    """The absolute path of a folder that driver and executors share; raises OptionError for a URL."""
    if "://" in str(path):
        raise OptionError(
            f"`{name}` must be a path on a file system that is mounted on the driver and all executors; got a"
            " URL. Mount it, or choose a folder on such a file system."
        )
    return Path(path).absolute()


def plain_path(name: str, path: str | Path) -> Path:
    """A shared path that Spark reads as it is written; raises OptionError for any other one."""
    shared = shared_path(name, path)
    if shared.as_uri() != f"file://{shared}" or any(sign in str(shared) for sign in "*{}"):
        raise OptionError(
            f"`{name}` must consist of ASCII letters, digits, `/`, `.`, `-` and `_`, because Spark reads"
            f" other characters in another way; got {path}. Choose another folder."
        )
    return shared


def check_executors(spark: SparkSession, folder: Path) -> None:
    """Compare Python and libraries of executors with the driver's, and let them look for a folder.

    Every executor has the chance of a task, but Spark decides which ones get it.

    Raises:
        OptionError: An executor lacks a library, has another Python, torch or widenet, or does not see the
            folder.
    """
    context, shared, libraries = spark.sparkContext, str(folder), _LIBRARIES

    # A function within a function travels as code, so that it also runs where widenet is missing.
    def facts(_: Iterator[int]) -> Iterator[dict[str, Any]]:
        import os
        import sys
        from importlib.metadata import PackageNotFoundError, version

        found: dict[str, Any] = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
        for library in libraries:
            try:
                found[library] = version(library)
            except PackageNotFoundError:
                found[library] = None
        found["sees"] = os.path.isdir(shared)  # noqa: PTH112 the smallest code
        yield found

    number = context.defaultParallelism
    try:
        reports = context.parallelize(range(number), number).mapPartitions(facts).collect()
    except PythonException as error:
        if "PYTHON_VERSION_MISMATCH" not in str(error):
            raise
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise OptionError(f"executors must have Python {own}, as the driver has. {_REMEDY}") from error
    for report in reports:
        for library in _LIBRARIES:
            own, there = version(library), report[library]
            if there is None or (library in _SAME and there != own):
                has = "one has none" if there is None else f"one has {there}"
                raise OptionError(f"executors must have {library} {own}, as the driver has; {has}. {_REMEDY}")
        if not report["sees"]:
            raise OptionError(
                f"{folder}: must be a folder that the driver and all executors share; an executor does"
                " not see it. Choose one on a common file system."
            )
