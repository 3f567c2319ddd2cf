"""What is known of the runs of a folder: read once, and again where files have changed."""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from widenet.errors import OptionError, WidenetError
from widenet.report.differences import differing
from widenet.report.listing import ListedRun, documents_of, found, listed
from widenet.report.subject import Subject
from widenet.runs.run_log import metric_names
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import is_locked

_FILES = (
    "network.json",
    "training.json",
    "fields.json",
    "log.jsonl",
    "machine.json",
    "model/manifest.json",
    "checkpoints/latest",
    "evaluations",
)

_Signature = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class KnownRun:
    """What the table of runs shows of one.

    Attributes:
        listed: Its facts, without differences.
        values: Loss and metrics of the epoch whose weights it keeps; none if they were changed since.
        documents: What may differ between runs.
        differences: Its values where the documents of the runs differ.
        signature: Changes when its files do.
    """

    listed: ListedRun
    values: dict[str, float]
    documents: dict[str, Any]
    differences: dict[str, Any]
    signature: _Signature


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the runs of a folder at one moment; never changed.

    Attributes:
        folder: The folder.
        version: Grows with each change, also from one process to the next.
        runs: The runs that can be read, by name.
        problems: Folders that are no run, or cannot be read as one, by name, with the reason.
    """

    folder: Path
    version: int
    runs: Mapping[str, KnownRun]
    problems: Mapping[str, str]


class KnownRuns:
    """Reads the runs of a folder; safe to use from several threads.

    Attributes:
        now: What is known; each look that finds a change replaces it as a whole.
    """

    def __init__(self, folder: Path) -> None:
        start = time.time_ns() // 1_000_000
        self.now = Known(folder, start, {}, {})
        self._paths: dict[str, Path] = {}
        self._strangers: dict[str, str] = {}
        self._damaged: dict[str, tuple[_Signature, str]] = {}
        self._documents: dict[str, dict[str, Any]] = {}
        self._differences: dict[str, dict[str, Any]] = {}
        self._looking = Lock()

    def look(self, everywhere: bool = True) -> Known:
        """Read what has changed: in the whole folder, or only in runs that have not finished."""
        with self._looking:
            self._look(everywhere)
            return self.now

    def _look(self, everywhere: bool) -> None:
        if everywhere:
            self._paths, self._strangers = self._found()
        else:
            there = ((name, path) for name, path in self._paths.items() if (path / "network.json").is_file())
            self._paths = dict(there)
        known = self.now
        runs = {name: run for name, run in known.runs.items() if name in self._paths}
        self._damaged = {name: why for name, why in self._damaged.items() if name in self._paths}
        for name, path in self._paths.items():
            run = runs.get(name)
            if everywhere or run is None or run.listed.state != "finished":
                self._read(name, path, runs)
        runs = {name: runs[name] for name in self._paths if name in runs}
        self._compare(runs)
        problems = {**self._strangers, **{name: why for name, (_, why) in self._damaged.items()}}
        if runs != known.runs or problems != known.problems:
            self.now = Known(known.folder, known.version + 1, runs, problems)

    def _found(self) -> tuple[dict[str, Path], dict[str, str]]:
        folder = self.now.folder
        try:
            paths, strangers = found(folder)
        except OptionError as error:
            return {}, {folder.name: str(error)}
        return paths, {_name(path, folder): why for path, why in strangers.items()}

    def _read(self, name: str, path: Path, runs: dict[str, KnownRun]) -> None:
        """Read a run whose files have changed."""
        signature = _signature(path)
        known, damaged = runs.get(name), self._damaged.get(name)
        if signature in (known and known.signature, damaged and damaged[0]):
            return
        try:
            subject = Subject(name, RunDirectory.open(path))
            run = listed(subject)
            measured = subject.measured
            names = ("loss", *metric_names(subject.records))
            values = {key: measured[key] for key in names if _is_number(measured.get(key))}
            runs[name] = KnownRun(
                run, values, documents_of(subject), self._differences.get(name, {}), signature
            )
            self._damaged.pop(name, None)
        except (WidenetError, OSError) as error:
            runs.pop(name, None)
            self._damaged[name] = signature, str(error)

    def _compare(self, runs: dict[str, KnownRun]) -> None:
        """Note where the documents of runs differ, which may change with any of them."""
        documents = {name: run.documents for name, run in runs.items()}
        if documents != self._documents:
            self._documents = documents
            self._differences = dict(zip(documents, differing(list(documents.values())), strict=True))
        for name, differences in self._differences.items():
            if runs[name].differences != differences:
                runs[name] = replace(runs[name], differences=differences)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path != folder else folder.name


def _signature(path: Path) -> _Signature:
    """Return what changes when a run's files do, or when a training begins or ends."""
    parts: list[object] = [is_locked(path)]
    for name in _FILES:
        try:
            status = os.stat(f"{path}/{name}")  # noqa: PTH116 a thousand runs are looked at in a moment
            parts.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            parts.append(None)
    return tuple(parts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
