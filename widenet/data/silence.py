"""Who listens to a long work that nobody listens to."""


def in_silence(text: str) -> None:
    """Say it to nobody."""
    del text
