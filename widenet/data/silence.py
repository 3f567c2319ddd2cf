"""A receiver of progress messages that ignores them."""


def ignore_message(text: str) -> None:
    """Ignore a message."""
    del text
