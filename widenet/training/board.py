"""The numbers of log.jsonl once more, in a file that TensorBoard reads."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class Board:
    """A file of TensorBoard's events, written in the thread that calls, so that a refusal of the system is
    seen where it happens.

    A training does without its board: after the first refusal, such as a full disk, `say` is told and nothing
    more is written.
    """

    def __init__(self, folder: Path, epoch: int, say: Callable[[str], None]) -> None:
        """Begin a file in a folder. epoch: the first that follows; what earlier files hold of it and later
        ones, TensorBoard drops.
        """
        self.folder, self.say = folder, say
        self.file: BinaryIO | None = None
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            self.file = (folder / name).open("xb")
        except OSError as error:
            self._give_up(error)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._write(Event(wall_time=time.time(), step=epoch, session_log=SessionLog(status=SessionLog.START)))

    def add(self, record: Mapping[str, Any]) -> None:
        """The numbers of an epoch, by name; "epoch" is its own."""
        values = [
            Summary.Value(tag=name, simple_value=value) for name, value in record.items() if name != "epoch"
        ]
        self._write(
            *(
                Event(wall_time=time.time(), step=record["epoch"], summary=Summary(value=[value]))
                for value in values
            )
        )

    def close(self) -> None:
        """End the file."""
        if self.file is not None:
            with suppress(OSError):  # every event has been flushed; what is left is one that was refused
                self.file.close()

    def _write(self, *events: Event) -> None:
        if self.file is None:
            return
        try:
            records = RecordWriter(self.file)
            for event in events:
                records.write(event.SerializeToString())
            self.file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.say(
            f"{self.folder} cannot be written: {error.strerror or error}. The training goes on without"
            " TensorBoard."
        )
        self.close()
        self.file = None
