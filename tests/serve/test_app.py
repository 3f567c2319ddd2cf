"""The routes of a real service: answers of predict, mistakes named, hostile requests refused."""

import json
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.conftest import LACKS, NUM, TOKEN, predicted, service
from widenet.runs import Model
from widenet.serve.page import PLACES

pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"{LACKS} are not installed; `make setup` installs them")

SCHEMATHESIS = shutil.which("schemathesis", path=Path(sys.executable).parent)


@pytest.fixture(scope="module")
def model(world):
    return Model.load(world.run("first"), "cpu")


@pytest.fixture(scope="module")
def predictions(world, model):
    return predicted(model, world.data, k=12)


def pairs(answer):
    return [(item["item"], item["score"]) for item in answer["items"]]


def test_answers_under_load_are_the_bits_of_predict(served, predictions, model):
    def of(row):
        if row % 3:
            return served.recommend(user=f"u{row}", k=12)
        return served.recommend(requests=[{"user": f"u{each}", "k": 12} for each in (row, 0, 1)])

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(of, range(NUM)))
    assert {reply.status for reply in replies} == {200}
    for row, reply in enumerate(replies):
        wanted = [row] if row % 3 else [row, 0, 1]
        found = [reply.json] if row % 3 else reply.json["results"]
        assert [pairs(answer) for answer in found] == [predictions[f"u{each}"] for each in wanted]
        assert {answer["fingerprint"] for answer in found} == {model.fingerprint()}
    assert served.measured("widenet_batch_rows_sum") >= NUM


def test_a_basket_gets_what_recommend_gives_with_titles(served, model):
    answer = served.recommend(items=["i4", "i9"], k=4).json
    assert answer["items"] == [vars(one) for one in model.recommend(["i4", "i9"], k=4)]


def test_scores_similar_items_and_titles(served, model):
    best = model.recommend(["i4"], k=3)
    scored = served.post("/v1/score", {"items": ["i4"], "candidates": [one.item for one in best[::-1]]}).json
    assert [item["score"] for item in scored["items"]] == [one.score for one in best[::-1]]
    similar = served.post("/v1/similar", {"item": "i4", "k": 3, "measure": "dot"}).json
    assert len(similar["items"]) == 3
    assert "i4" not in [item["item"] for item in similar["items"]]
    found = served.get("/v1/items?search=title%2012").json["items"]
    assert found[0] == {"item": "i12", "title": "Title 12"}
    assert served.get("/v1/items?search=nothing%00").json["items"] == []


def test_it_says_how_it_is_and_what_it_takes(served, model):
    assert served.get("/health/live").json == {"status": "live"}
    assert served.get("/health/ready").json == {"status": "ready", "fingerprint": model.fingerprint()}
    document = served.get("/openapi.json").json
    assert {"/v1/recommend", "/v1/score", "/v1/similar", "/v1/items"} <= set(document["paths"])
    assert document["security"] == []
    text = served.get("/metrics").body.decode()
    for name in ("widenet_requests_total", "widenet_request_seconds_bucket", "widenet_queue_rows"):
        assert f"\n{name}" in text
    served.get("/page/page.js")
    text = served.get("/metrics").body.decode()
    routes = re.findall('^widenet_request_seconds_count{route="(.*)"}', text, re.MULTILINE)
    assert [route for route in routes if "page" in route or route == "/"] == ["page"]
    assert 'widenet_requests_total{route="page",status="200"}' in text


MANY = dict.fromkeys(map(str, range(10_001)), 1)
REFUSED = [
    ("/v1/recommend", b'{"items": ["i1"', 422, "malformed", None),
    ("/v1/recommend", b"\xff\xfe{}", 422, "malformed", None),
    ("/v1/recommend", b"[" * 100_000, 422, "malformed", None),
    ("/v1/recommend", {"items": ["i1"], "where": {"price": 3}}, 422, "invalid", "where"),
    ("/v1/recommend", {"items": ["i1"], "where": {"price": {}}}, 422, "malformed", "where"),
    ("/v1/recommend", {"items": ["i1"], "k": 100_000}, 422, "malformed", "k"),
    ("/v1/recommend", {"items": ["i1"], "k": 0}, 422, "malformed", "k"),
    ("/v1/recommend", {"items": ["i1"], "kk": 1}, 422, "malformed", "kk"),
    ("/v1/recommend", b'{"items": ["i1"], "weights": {"i2": 1e39}}', 422, "malformed", "weights"),
    ("/v1/recommend", b'{"items": ["i1"], "values": [1e39]}', 422, "malformed", "values"),
    ("/v1/recommend", {"items": ["i1", 2]}, 422, "malformed", "items"),
    ("/v1/recommend", {"items": ["i1"] * 100_000}, 422, "malformed", "items"),
    ("/v1/recommend", {"items": ["i1"] * 200_000}, 413, "too_large", None),
    ("/v1/recommend", {"items": ["i1"], "weights": MANY}, 422, "malformed", "weights"),
    ("/v1/recommend", {"requests": [{"items": ["i1"]}] * 65}, 422, "too_many", "requests"),
    ("/v1/recommend", {"requests": []}, 422, "malformed", "requests"),
    ("/v1/recommend", {"requests": [{"items": 3}]}, 422, "malformed", "items"),
    ("/v1/recommend", {"requests": [{"items": ["i1"]}], "k": 3}, 422, "contradiction", "requests"),
    ("/v1/recommend", {"requests": [{"items": ["i1"]}, {"items": ["../x"]}]}, 422, "unknown_item", "items"),
    ("/v1/recommend", {}, 422, "nothing_known", "items"),
    ("/v1/score", {"items": ["i1"]}, 422, "malformed", "candidates"),
    ("/v1/items", None, 422, "malformed", "search"),
    ("/v1/items?search=", None, 422, "malformed", "search"),
    ("/v1/items?limit=3&search=a", None, 422, "malformed", "limit"),
    ("/v1/items?search=" + "x" * 1000, None, 422, "malformed", "search"),
    ("/../../etc/passwd", None, 404, "not_found", None),
    ("/v1/items/%2e%2e/%2e%2e/etc/passwd", None, 404, "not_found", None),
]
"""Requests, and what refuses them; without a body they are asked by GET."""


@pytest.mark.parametrize(("path", "body", "status", "code", "option"), REFUSED)
def test_a_wrong_request_gets_one_clear_answer(path, body, status, code, option, served):
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
    reply = served.ask("GET" if body is None else "POST", path, sent, {"Content-Type": "application/json"})
    assert (reply.status, reply.code, reply.json["error"].get("option")) == (status, code, option)
    assert reply.json["error"]["message"].isprintable()


@pytest.mark.parametrize(("path", "methods"), [("/v1/score", {"POST"}), ("/v1/model", {"GET", "HEAD"})])
def test_another_method_is_told_those_of_a_route_and_a_head_has_no_body(path, methods, served):
    reply = served.ask("PUT", path)
    assert (reply.status, set(reply.headers["allow"].split(", "))) == (405, methods)
    head = served.ask("HEAD", "/v1/model")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": "localhost:x"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_pages_of_other_sites_and_other_names_of_the_host_are_refused(headers, status, served):
    wanted = {"Content-Type": "application/json", **headers}
    assert served.ask("POST", "/v1/recommend", b'{"items": ["i1"]}', wanted).status == status


def test_bytes_that_are_no_request_and_a_client_that_leaves_stop_nobody(served):
    head = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", head + b"Content-Length: 50\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(sent)
    # Connections that say nothing.
    idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(300)]
    assert served.recommend(items=["i1"]).status == 200
    for connection in idle:
        connection.close()
    chunks = (b"x" * 2**16 for _ in range(40))
    reply = served.ask("POST", "/v1/recommend", chunks, {"Content-Type": "application/json"})
    assert reply.status == 413


def test_with_a_token_every_request_needs_it(world, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    given = {"Authorization": f"Bearer {TOKEN}"}
    words = "--token-file", tmp_path / "token"
    others = [{}, *({"Authorization": word} for word in ("Bearer x", f"Basic {TOKEN}", "é"))]
    with service(world.run("first"), *words, "--allow-host", "shop.example") as running:
        body = {"items": ["i1"], "k": 3}
        for wrong in others:
            assert running.post("/v1/recommend", body, **wrong).status == 401
            assert running.get("/metrics", **wrong).status == 401
        assert running.get("/health/live").status == 200
        assert {running.get(place).status for place in PLACES} == {200}
        document = running.get("/openapi.json", **given).json
        assert document["security"] == [{"token": []}]
        assert document["paths"]["/health/live"]["get"]["security"] == []
        assert running.post("/v1/recommend", body, **given, Host="SHOP.example:8000").status == 200
        assert running.end() == (0, "")


def test_every_file_of_the_page_is_sent_with_its_kind_and_a_strict_policy(served):
    replies = {place: served.get(place) for place in PLACES}
    assert {reply.status for reply in replies.values()} == {200}
    for place, reply in replies.items():
        headers = {name.lower(): value for name, value in reply.headers.items()}
        policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'", place
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        assert headers["content-type"].startswith(kinds.get(place.rpartition(".")[2], "text/html"))


@pytest.mark.skipif(SCHEMATHESIS is None, reason="needs Schemathesis: make test-page")
def test_made_requests_get_what_the_document_says_and_no_server_error(served, tmp_path):
    """One rule is left out: a request with an unknown item is as the document says, and yet refused."""
    address = f"http://127.0.0.1:{served.port}/openapi.json"
    words = (
        "--max-examples 30 --seed 1 --phases coverage,fuzzing --generation-database none"
        " --exclude-checks positive_data_acceptance"
    )
    refusals = "[checks.negative_data_rejection]\nexpected-statuses = ['4xx']"  # also 413 of a large body
    (tmp_path / "schemathesis.toml").write_text(refusals)
    line = [SCHEMATHESIS, "run", address, *words.split()]
    checked = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "passed" in checked.stdout
    assert served.recommend(items=["i1"]).status == 200
