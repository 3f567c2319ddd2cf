"""What names a tracker, and what of it stands in messages."""

import pytest

from tests.mistakes import mistake
from widenet.errors import OptionError
from widenet.tracking.tracker_uri import TrackingUri

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text", ["", "mlflow:", "wandb", f"https://bob:{SECRET}@host", f"mlflo:x?token={SECRET}"]
)
def test_another_form_is_refused_without_repeating_it(text):
    with mistake(OptionError) as caught:
        TrackingUri.of(text)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mlflow", "mlflow"),
        ("mlflow:sqlite:///a/b.db", "mlflow:sqlite:///a/b.db"),
        ("mlflow:databricks", "mlflow:databricks"),
        ("mlflow:http://localhost:5000", "mlflow:http://localhost:5000"),
        (f"mlflow:https://bob:{SECRET}@host/a?token={SECRET}", "mlflow:https://***@host/a?***"),
        (f"mlflow:https://{SECRET}@host", "mlflow:https://***@host"),
        (f"mlflow:https://bob:a@{SECRET}@host", "mlflow:https://***@host"),
        (f"mlflow:mysql+pymysql://bob:a/{SECRET}@host/db", "mlflow:mysql+pymysql://***@host/db"),
        (f"mlflow:mysql://bob:a?{SECRET}@host/db", "mlflow:mysql://***"),
        (f"mlflow:postgresql://host/db?password=a@{SECRET}", "mlflow:postgresql://***"),
        (f"mlflow:http://host/#{SECRET}", "mlflow:http://host/#***"),
        (f"mlflow:bob:{SECRET}@host", "mlflow:***@host"),
        (f"mlflow:{SECRET}@host?x=http://y", "mlflow:***@host?***"),
        ("mlflow:sqlite:////home/bob@firm/a.db", "mlflow:sqlite:////home/bob@firm/a.db"),
        ("mlflow:http://[::1", "mlflow:http://[::1"),
    ],
)
def test_a_uri_is_shown_without_credentials(text, shown):
    assert TrackingUri.of(text).shown == shown


def test_the_reason_of_a_failure_holds_no_credentials():
    place = TrackingUri.of(f"mlflow:https://bob:%68unter2@host/a?token={SECRET}x")
    error = ValueError(
        f"no https://bob:%68unter2@host/a?token={SECRET}x, nor {SECRET} or {SECRET}x for bob.\nMore"
    )
    assert place.reason(error) == "no https://***@host/a?***, nor *** or *** for ***"
    assert place.reason(KeyError()) == "KeyError"
