"""The Spark session, and what its executors must have in common with the driver."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from widenet.errors import OptionError
from widenet.stores.uri import Uri, is_uri

_LIBRARIES = ("pyarrow", "torch", "widenet")
_SAME = ("torch", "widenet")
"""Libraries of which another version may compute other bits."""


def session_of(df: DataFrame) -> SparkSession:
    """The session of a DataFrame; raises OptionError for another kind of table, or under Spark Connect."""
    is_frame = isinstance(df, DataFrame)
    OptionError.require(is_frame, "must be a Spark DataFrame", option="df", value=type(df).__name__)
    rule = "must be of a session in the driver, not of Spark Connect"
    OptionError.require(not is_remote(), rule, option="df")
    return df.sparkSession


def shared_place(name: str, place: str | Path) -> Path | str:
    """The absolute path of a folder that driver and executors share, or the URI of an object store.

    Raises:
        OptionError: It is a URI of something else, or of another form.
    """
    if is_uri(place):
        return str(Uri.of(place))
    rule = "must be a path that all executors share, or the URI of an object store"
    OptionError.require("://" not in str(place), rule, option=name)
    return Path(place).absolute()


def check_executors(spark: SparkSession, *places: Path | str) -> None:
    """Compare libraries of executors with the driver's, and let them look for places.

    Every executor has the chance of a task, but Spark decides which ones get it.

    Args:
        spark: The session.
        places: Folders, and URIs of object stores, which need not hold anything yet.

    Raises:
        OptionError: An executor lacks a library, has another torch or widenet, does not see a folder, or
            cannot use a store.
    """
    context, libraries = spark.sparkContext, _LIBRARIES
    folders = [str(place) for place in places if isinstance(place, Path)]
    uris = [place for place in places if isinstance(place, str)]

    # A function within a function travels as code, so that it also runs where widenet is missing.
    def facts(_: Iterator[int]) -> Iterator[dict[str, Any]]:
        import os
        from importlib.metadata import PackageNotFoundError, version

        found: dict[str, Any] = {}
        for library in libraries:
            try:
                found[library] = version(library)
            except PackageNotFoundError:
                found[library] = None
        found["unseen"] = [folder for folder in folders if not os.path.isdir(folder)]  # noqa: PTH112 small
        found["refused"] = []
        if uris and found["widenet"] is not None and found["pyarrow"] is not None:
            from widenet.stores.folders import problem_of

            found["refused"] = [problem for problem in map(problem_of, uris) if problem is not None]
        yield found

    number = context.defaultParallelism
    reports = context.parallelize(range(number), number).mapPartitions(facts).collect()
    for report in reports:
        for library in _LIBRARIES:
            own, there = version(library), report[library]
            is_same = there == own if library in _SAME else there is not None
            rule = f"executors must have {library} {own}, as the driver has"
            OptionError.require(is_same, rule, value=there)
        for unseen in report["unseen"]:
            raise OptionError("must be a folder that all executors share", place=unseen)
        for refused in report["refused"]:
            raise OptionError(refused)
