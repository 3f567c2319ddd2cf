"""Messages about the progress of a pass over data, and a receiver that ignores them."""


class Note(str):
    """A message that is whole by itself; other messages name a phase that begins."""

    __slots__ = ()


def ignore_message(text: str) -> None:
    """Ignore a message."""
    del text
