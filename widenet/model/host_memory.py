"""Tensors in the host's pinned memory whose rows cross to a CUDA device and back, two windows at a time."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor

from widenet.kernels.rows import pinned_zeros
from widenet.plan.streaming import ALIGNED_BYTES, NUM_WINDOWS, room_for


@dataclass(frozen=True)
class Crossing:
    """Copies on their way.

    Attributes:
        device: The device.
        event: Recorded behind them.
    """

    device: torch.device
    event: "torch.cuda.Event"

    def result(self) -> None:
        """Let the computing stream wait for them; the host does not."""
        torch.cuda.current_stream(self.device).wait_event(self.event)


class HostMemory:
    """Pinned memory for weights, and the stream on which their rows cross to a device and back.

    Attributes:
        device: The device.
        stream: The stream.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._windows: list[Tensor] = []

    def zeros(self, shape: Sequence[int]) -> Tensor:
        """Return float32 zeros; raises CapacityError."""
        return pinned_zeros(shape)

    def window(self, number: int, like: Sequence[Tensor]) -> list[Tensor]:
        """Return a window's room for rows, as tensors on the device.

        Args:
            number: Number of the window; those of equal numbers modulo `NUM_WINDOWS` are the same memory.
            like: The rows in the host's memory, contiguous.
        """
        sizes = [room_for(rows.numel() * rows.element_size()) for rows in like]
        if not self._windows or sum(sizes) > len(self._windows[0]):
            self.settle()
            self._windows = []
            self._windows = [
                torch.empty(sum(sizes), dtype=torch.uint8, device=self.device) for _ in range(NUM_WINDOWS)
            ]
        window, tensors, start = self._windows[number % NUM_WINDOWS], [], 0
        for rows, size in zip(like, sizes, strict=True):
            place = start + rows.storage_offset() * rows.element_size() % ALIGNED_BYTES
            own = window[place : place + rows.numel() * rows.element_size()]
            tensors.append(own.view(rows.dtype).view(rows.shape))
            start += size
        return tensors

    def send(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Crossing:
        """Begin to copy tensors into others, behind all that the computing stream has been asked for so far.

        Args:
            pairs: The tensors to fill, and their sources.
        """
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for into, source in pairs:
                into.copy_(source, non_blocking=True)
            return Crossing(self.device, self.stream.record_event())

    def settle(self) -> None:
        """Wait until all rows that were sent back are in the host's memory."""
        self.stream.synchronize()

    def brought(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """Return copies on the device of some rows, int64 [U] in the host's memory."""
        staged = torch.empty(len(rows_U), *tensor.shape[1:], dtype=tensor.dtype, pin_memory=True)
        torch.index_select(tensor, 0, rows_U, out=staged)
        return staged.to(self.device, non_blocking=True)

    def put_back(self, tensors: Sequence[tuple[Tensor, Tensor]], rows_U: Tensor) -> None:
        """Write copies of rows back into their tensors; waits for the device.

        Args:
            tensors: The tensors in the host's memory, and the copies of their rows on the device.
            rows_U: The rows, int64 in the host's memory, without repeats.
        """
        staged = [torch.empty(own.shape, dtype=own.dtype, pin_memory=True) for _, own in tensors]
        for (_, own), into in zip(tensors, staged, strict=True):
            into.copy_(own, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        for (tensor, _), into in zip(tensors, staged, strict=True):
            tensor.index_copy_(0, rows_U, into)


class HostSweep:
    """A pass over the rows of tensors in the host's memory, tile by tile.

    One tile is at work, while the next one takes the place of the one before.
    """

    chunk_rows = None

    def __init__(self, tensors: Sequence[Tensor], writes: bool, host: HostMemory) -> None:
        """Prepare a pass over tensors of equal numbers of rows, which are written or not."""
        self._tensors, self._writes, self._host = [tensor.detach() for tensor in tensors], writes, host
        self._coming: deque[Crossing] = deque()
        self._windows: dict[int, list[Tensor]] = {}
        self._tile_rows = self._next = 0

    def at(self, start: int, stop: int) -> None:
        """See `Sweep.at`."""
        self._tile_rows = self._tile_rows or stop - start
        self._send_back_before(start // self._tile_rows)
        last = -(-len(self._tensors[0]) // self._tile_rows)
        needed = -(-stop // self._tile_rows)
        for tile in range(self._next, min(needed + NUM_WINDOWS - 1, last)):
            sources = self._in_host(tile)
            self._windows[tile] = self._host.window(tile, sources)
            self._coming.append(self._host.send(zip(self._windows[tile], sources, strict=True)))
            self._next = tile + 1
        while len(self._coming) > max(self._next - needed, 0):
            self._coming.popleft().result()

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """Return views of the window that holds a tile's rows."""
        tile = start // self._tile_rows
        place = slice(start - tile * self._tile_rows, stop - tile * self._tile_rows)
        return [own[place] for own in self._windows[tile]]

    def _send_back_before(self, tile: int) -> None:
        """Copy all tiles before one into the host's memory if they were written; their windows are free."""
        for done in [each for each in self._windows if each < tile]:
            window = self._windows.pop(done)
            if self._writes:
                self._host.send(zip(self._in_host(done), window, strict=True))

    def _in_host(self, tile: int) -> list[Tensor]:
        rows = slice(tile * self._tile_rows, (tile + 1) * self._tile_rows)
        return [tensor[rows] for tensor in self._tensors]

    def __enter__(self) -> "HostSweep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the rest back."""
        while self._coming:
            self._coming.popleft().result()
        self._send_back_before(self._next)
