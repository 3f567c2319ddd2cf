"""Writes the numbers of log.jsonl, and the documents, into a file for TensorBoard."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from widenet.errors import unwritten
from widenet.training.run_log import numbers_of


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
        """Write the numbers of an epoch, by name; "epoch" is its number."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in numbers_of(record).items()
            if name != "epoch"
        ]
        self._write(
            *(
                Event(wall_time=time.time(), step=record["epoch"], summary=Summary(value=[value]))
                for value in values
            )
        )

    def add_documents(self, documents: Mapping[str, str], epoch: int) -> None:
        """Write the JSON of documents, by name, for the page of texts; `epoch` is where they stand."""
        values = [
            Summary.Value(
                tag=name,
                metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
                tensor=TensorProto(dtype=DT_STRING, string_val=[f"```json\n{text}\n```".encode()]),
            )
            for name, text in documents.items()
        ]
        self._write(Event(wall_time=time.time(), step=epoch, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            with suppress(OSError):  # every event has been flushed, except one that could not be written
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
        self.say(f"{unwritten(self.folder, error)} The training continues without TensorBoard.")
        self.close()
        self.file = None
