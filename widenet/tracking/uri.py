"""The tracker that `track` names, and messages about it that hold no secret."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from widenet.errors import OptionError

_LONGEST_REASON = 200


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
        """The text with its credentials and its query left out."""
        if self.uri is None:
            return "mlflow"
        head, slashes, rest = self.uri.partition("://")
        if not slashes:
            return f"mlflow:{self.uri}"
        rest, query, _ = rest.partition("?")
        place, slash, path = rest.partition("/")
        user, at, host = place.rpartition("@")
        del user
        hidden = f"{'***@' if at else ''}{host}{slash}{path}{'?***' if query else ''}"
        return f"mlflow:{head}://{hidden}"

    def reason(self, error: BaseException) -> str:
        """The first line of an error, without what `shown` hides."""
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        if self.uri is not None:
            text = text.replace(self.uri, self.shown.removeprefix("mlflow:"))
            for secret in sorted(_secrets(self.uri), key=len, reverse=True):
                text = text.replace(secret, "***")
        return text[:_LONGEST_REASON].rstrip(". ")


def _secrets(uri: str) -> set[str]:
    """The parts of a URI that may be secret, as they stand and decoded."""
    parts = urlsplit(uri)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    pieces = {user, password, parts.query, *(pair.partition("=")[2] for pair in parts.query.split("&"))}
    return {text for piece in pieces for text in (piece, unquote(piece)) if text}
