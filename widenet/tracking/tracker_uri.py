"""The tracker that `track` names, and messages about it that hold no secret."""

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from widenet.errors import OptionError

_LONGEST_REASON = 200
_SCHEME = re.compile(r"\A[\w.+-]+://")
_LOCAL = ("sqlite:///", "file:///", "/", ".")
"""How a URI begins if it is a path, where an @ ends no credentials."""


@dataclass(frozen=True)
class TrackingUri:
    """A tracker.

    Attributes:
        uri: Where it is. It may hold credentials, so only `shown` belongs into messages. None: where the
            tracker's own environment variables say.
    """

    uri: str | None

    @classmethod
    def of(cls, text: str) -> "TrackingUri":
        """Read mlflow:URI, or mlflow alone; raises OptionError, which does not repeat the text."""
        kind, colon, uri = text.partition(":")
        if kind != "mlflow" or bool(colon) != bool(uri):
            raise OptionError(
                "`track` must be mlflow:URI, such as mlflow:sqlite:///mlflow.db or mlflow:http://localhost:5000,"
                " or mlflow alone for the URI in MLFLOW_TRACKING_URI. It is not repeated here, as it may hold"
                " a secret."
            )
        return cls(uri or None)

    @property
    def shown(self) -> str:
        """The text with its credentials, its query and its fragment left out."""
        if self.uri is None:
            return "mlflow"
        scheme, credentials, place, tail = _split(self.uri)
        return f"mlflow:{scheme}{'***' if credentials else ''}{place}{f'{tail[0]}***' if tail else ''}"

    def reason(self, error: BaseException) -> str:
        """The first line of an error, without what `shown` hides."""
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if uri:
            text = text.replace(uri, TrackingUri(uri).shown.removeprefix("mlflow:"))
            for secret in sorted(_secrets(uri), key=len, reverse=True):
                text = text.replace(secret, "***")
        return text[:_LONGEST_REASON].rstrip(". ")


def _split(uri: str) -> tuple[str, str, str, str]:
    """Split a URI, valid or not, into scheme, credentials, place, and query with fragment.

    A password may hold any letter, so the last @ ends the credentials. If a query may begin before it, all
    after the scheme is taken for credentials.
    """
    rest = _SCHEME.sub("", uri)
    scheme = uri.removesuffix(rest)
    end = 0 if uri.startswith(_LOCAL) else max(rest.rfind("@"), 0)
    if re.search(r"[?#]", rest[:end]):
        return scheme, rest, "", ""
    place = re.split(r"[?#]", rest[end:], maxsplit=1)[0]
    return scheme, rest[:end], place, rest[end + len(place) :]


def _secrets(uri: str) -> set[str]:
    """The parts of a URI that may be secret, as they stand and decoded.

    Programs disagree on where a password with such letters as / ends, and repeat parts of it.
    """
    _, credentials, _, tail = _split(uri)
    pairs = re.split(r"[?#&]", tail)
    values = [pair.partition("=")[2] for pair in pairs]
    password = credentials.partition(":")[2]
    pieces = {credentials, password, *re.split(r"[:@/?#&=]", credentials), tail[1:], *pairs, *values}
    return {text for piece in pieces for text in (piece, unquote(piece)) if text}
