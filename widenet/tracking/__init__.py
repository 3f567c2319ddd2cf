"""Trackers: other programs that record a training, such as MLflow; here only what names one."""

from widenet.errors import OptionError


def uri_of(track: str) -> str | None:
    """Return the URI of mlflow:URI, None for mlflow alone; raises OptionError, which does not repeat it."""
    kind, colon, uri = track.partition(":")
    is_known = kind == "mlflow" and bool(colon) == bool(uri)
    rule = "must be mlflow:URI, or mlflow for that in MLFLOW_TRACKING_URI"
    OptionError.require(is_known, rule, option="track")
    return uri or None


def shown(track: str) -> str:
    """Return a tracker for a message; without its URI if that may hold a secret."""
    return "mlflow" if may_hold_secret(track) else track


def may_hold_secret(uri: str) -> bool:
    """Whether a URI has credentials, a query or a fragment, whose parts errors of libraries repeat."""
    return bool(set(uri) & set("@?#"))
