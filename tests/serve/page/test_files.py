"""The files of the page as a real service sends them: their headers, their size, and nothing of the run."""

import re

import pytest

from tests.serve.conftest import TOKEN, service
from widenet.serve.page.files import PLACES

MOST_BYTES = 46_000


def test_every_file_is_sent_with_its_kind_and_a_strict_policy(served):
    replies = {place: served.get(place) for place in PLACES}
    assert {reply.status for reply in replies.values()} == {200}
    for place, reply in replies.items():
        headers = {name.lower(): value for name, value in reply.headers.items()}
        policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'", place
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        assert headers["content-type"].startswith(kinds.get(place.rpartition(".")[2], "text/html"))
    assert sum(len(reply.body) for reply in replies.values()) < MOST_BYTES


def test_the_files_name_no_other_host_and_each_other_alone(served):
    texts = {place: served.get(place).body.decode() for place in PLACES}
    hosts = {host for text in texts.values() for host in re.findall(r"https?://[^\"'\s)]+", text)}
    assert hosts == {"http://www.w3.org/2000/svg"}  # the name of a format, which nobody asks for
    pages = [text for text in texts.values() if text.startswith("<!doctype html>")]
    named = {name for text in pages for name in re.findall(r'(?:href|src)="([^"]+)"', text)}
    named -= {".", "openapi.json"}
    imported = {name for text in texts.values() for name in re.findall(r'from "\./([^"]+)"', text)}
    assert {f"/{name}" for name in named} | {f"/page/{name}" for name in imported} == set(PLACES) - {"/"}


@pytest.mark.parametrize("place", ["/page/", "/page/files.py", "/page/../app.py", "/page/%2e%2e/app.py"])
def test_nothing_else_of_the_folder_is_sent(place, served):
    assert served.get(place).status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403), ({"Host": "localhost"}, 200)],
)
def test_the_page_keeps_the_rules_of_the_service(headers, status, served):
    assert served.get("/", **headers).status == status


def test_it_says_which_model_answers(served):
    about = served.get("/v1/model").json
    assert about == {
        "fingerprint": served.get("/health/ready").json["fingerprint"],
        "run": "first",
        "num_items": 301,
        "in_8_bits": False,
        "has_users": True,
        "parts": ["heldout"],
        "can_explain": False,
        "attributes": {},
        "reads_items": True,
        "reads_values": False,
        "fields": [],
    }


def test_with_a_token_the_page_is_open_and_what_it_asks_for_is_not(world, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with service(world.run("first"), "--token-file", tmp_path / "token") as running:
        files = [running.get(place) for place in PLACES]
        assert {reply.status for reply in files} == {200}
        assert running.get("/v1/model").status == 401
        about = running.get("/v1/model", Authorization=f"Bearer {TOKEN}").json
        assert (about["run"], about["has_users"]) == ("first", False)
