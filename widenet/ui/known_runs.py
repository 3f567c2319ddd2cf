"""What is known of the runs of a folder: read once, and again where files have changed."""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from widenet.errors import OptionError, WidenetError
from widenet.report.listing import ListedRun, differing, documents_of, found, listed
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
    """

    listed: ListedRun
    values: dict[str, float]
    documents: dict[str, Any]
    differences: dict[str, Any] = field(default_factory=dict)


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
        self.now = Known(folder, time.time_ns() // 1_000_000, {}, {})
        self._read: dict[str, tuple[_Signature, KnownRun | str]] = {}
        """What was read of each run, or why it cannot be, with the signature of its files."""
        self._looking = Lock()

    def look(self) -> Known:
        """Read what has changed."""
        with self._looking:
            before, folder = self._read, self.now.folder
            try:
                paths, strangers = found(folder)
            except OptionError as error:
                paths, strangers = {}, {folder: str(error)}
            self._read = {name: _again(name, path, before.get(name)) for name, path in paths.items()}
            problems = {_name(path, folder): why for path, why in strangers.items()}
            problems |= {name: why for name, (_, why) in self._read.items() if isinstance(why, str)}
            if _signatures(self._read) != _signatures(before) or problems != self.now.problems:
                self.now = Known(folder, self.now.version + 1, self._compared(), problems)
            return self.now

    def _compared(self) -> dict[str, KnownRun]:
        """Return the runs with what differs between their documents; unchanged ones are the same objects."""
        runs = {name: run for name, (_, run) in self._read.items() if isinstance(run, KnownRun)}
        differences = differing([run.documents for run in runs.values()])
        for (name, run), own in zip(runs.items(), differences, strict=True):
            if run.differences != own:
                runs[name] = replace(run, differences=own)
                self._read[name] = self._read[name][0], runs[name]
        return runs


def _again(
    name: str, path: Path, before: tuple[_Signature, KnownRun | str] | None
) -> tuple[_Signature, KnownRun | str]:
    """Read a run, or why it cannot be read, if its files have changed."""
    signature = _signature(path)
    if before is not None and before[0] == signature:
        return before
    try:
        subject = Subject(name, RunDirectory.open(path))
        measured = subject.measured
        names = ("loss", *metric_names(subject.records))
        values = {key: measured[key] for key in names if _is_number(measured.get(key))}
        return signature, KnownRun(listed(subject), values, documents_of(subject))
    except (WidenetError, OSError) as error:
        return signature, str(error)


def _signatures(read: Mapping[str, tuple[_Signature, KnownRun | str]]) -> dict[str, _Signature]:
    return {name: signature for name, (signature, _) in read.items()}


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
