"""Which texts are URIs, which are refused, and that a refused one is never repeated."""

from pathlib import Path

import pytest

from tests.mistakes import mistake
from widenet.errors import OptionError
from widenet.stores.uri import Uri, check_known_scheme, is_uri, shown

SECRET = "AKIASECRET"


@pytest.mark.parametrize("form", [str, Path])
@pytest.mark.parametrize(
    ("text", "scheme", "key"),
    [
        ("s3://b/k/l", "s3", "k/l"),
        ("S3://b/k/l/", "s3", "k/l"),
        ("s3://b//k/./l", "s3", "k/l"),
        ("s3:/b/k", "s3", "k"),
        ("gs://b/k", "gs", "k"),
        ("abfs://b/k", "abfs", "k"),
        ("ABFSS://b/k", "abfs", "k"),
    ],
)
def test_a_uri_is_the_same_as_text_and_as_path(form, text, scheme, key):
    assert is_uri(form(text))
    assert Uri.of(form(text)) == Uri(scheme, "b", key)
    assert shown(form(text)) == f"{scheme}://b/{key}"


@pytest.mark.parametrize("value", ["s3", "s3:", "s3b/k", "./s3:/b", "/s3:/b", "data/s3://b", "c:/x", None, 3])
def test_everything_else_is_none(value):
    assert not is_uri(value)


@pytest.mark.parametrize(
    "text",
    [
        f"abfss://container@{SECRET}.dfs.core.windows.net/key",
        f"abfs://user:{SECRET}@container/key",
        f"abfs://container/key?sig={SECRET}",
        f"s3://bucket/key?X-Amz-Credential={SECRET}",
        f"s3://bucket/key#{SECRET}",
        f"s3://{SECRET}@bucket/key",
        f"s3://{SECRET}",
        f"s3:///{SECRET} /key",
        f"s3://bucket/../{SECRET}",
        f"s3://bucket/a\n{SECRET}",
        f"s3://bucket/a//{SECRET}",
        f"s3://bucket/{SECRET * 100}",
    ],
)
def test_a_uri_that_may_hold_a_secret_or_leads_elsewhere_is_refused_and_not_repeated(text):
    with mistake(OptionError) as refusal:
        Uri.of(text)
    assert SECRET not in str(refusal.value)
    assert "key" not in str(refusal.value).replace("a key", "")


def test_other_schemes_are_refused_where_uris_may_stand():
    with mistake(OptionError, option="out"):
        check_known_scheme("`out`", "hdfs://a/b")
    check_known_scheme("`out`", "abfs://a/b")
