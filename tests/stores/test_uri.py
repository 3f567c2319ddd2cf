"""Which texts are URIs, which are refused, and that a refused one is never repeated."""

from pathlib import Path

import pytest

from tests.mistakes import mistake
from widenet.errors import OptionError
from widenet.stores.uri import Uri, check_known_scheme, is_uri, shown

SECRET = "AKIASECRET"


@pytest.mark.parametrize("text", ["s3://b/k", "gs://b/k", "abfs://b/k", "abfss://b/k", "S3://b/k", "s3:/b/k"])
def test_a_text_with_a_scheme_of_a_store_is_a_uri_as_text_and_as_path(text):
    assert is_uri(text)
    assert is_uri(Path(text))


@pytest.mark.parametrize("value", ["s3", "s3:", "s3b/k", "./s3:/b", "/s3:/b", "data/s3://b", "c:/x", None, 3])
def test_everything_else_is_none(value):
    assert not is_uri(value)


@pytest.mark.parametrize("form", [str, Path])
@pytest.mark.parametrize("text", ["s3://b/k/l", "s3://b/k/l/", "s3://b//k/./l", "s3:/b/k/l"])
def test_a_uri_is_the_same_as_text_and_as_path(form, text):
    assert Uri.of(form(text)) == Uri("s3", "b", "k/l")
    assert shown(form(text)) == "s3://b/k/l"


def test_a_container_has_one_uri_with_and_without_the_s_of_tls():
    assert Uri.of("abfss://b/k") == Uri.of("ABFS://b/k") == Uri("abfs", "b", "k")


@pytest.mark.parametrize(
    "text",
    [
        f"abfss://container@{SECRET}.dfs.core.windows.net/key",
        f"abfs://user:{SECRET}@container/key",
        f"abfs://container/key?sig={SECRET}",
        f"s3://bucket/key?X-Amz-Credential={SECRET}",
        f"s3://bucket/key#{SECRET}",
        f"s3://user:{SECRET}@bucket/key",
        f"s3://{SECRET}@bucket/key",
        f"s3://user:with/{SECRET}@bucket/key",
        f"s3://{SECRET}",
        f"s3://{SECRET}/",
        f"s3:///{SECRET} /key",
        f"s3://-{SECRET}/key",
        f"s3://bucket/../{SECRET}",
        f"s3://bucket/a\n{SECRET}",
        f"s3://bucket/a\\{SECRET}",
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
