"""Writes the numbers of log.jsonl into a file for TensorBoard."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from widenet.errors import unwritten
from widenet.training.state import numbers_of


class Board:
    """A TensorBoard event file. It is written in the calling thread, so that errors are noticed at once.

    A training continues without its board: after the first error, such as a full disk, this calls `say` once
    and writes nothing more.
    """

    def __init__(self, folder: Path, epoch: int, say: Callable[[str], None]) -> None:
        """Begin a file.

        Args:
            folder: Folder of the file; made if it is missing.
            epoch: The first epoch to be written; TensorBoard drops it and later ones from earlier files.
            say: Called with a sentence if the file cannot be written.
        """
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.say, self.path = say, folder / name
        self.is_whole = True
        self._write(file_version="brain.Event:2")
        self._write(step=epoch, session_log=SessionLog(status=SessionLog.START))

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of an epoch, by name; "epoch" is its number."""
        numbers = {name: value for name, value in numbers_of(record).items() if name != "epoch"}
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._write(step=record["epoch"], summary=Summary(value=values))

    def _write(self, **content: Any) -> None:
        """Append an event with the time."""
        if not self.is_whole:
            return
        event = Event(wall_time=time.time(), **content).SerializeToString()
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as file:
                RecordWriter(file).write(event)
        except OSError as error:
            self.is_whole = False
            self.say(f"{unwritten(self.path.parent, error)} The training continues without TensorBoard.")
