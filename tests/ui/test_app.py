"""The pages over HTTP, without a browser: statuses, headers, names that are HTML, and who may look."""

import json
import re
import shutil
from urllib.parse import quote, urlencode, urljoin

import pytest

from tests.pages import Page
from tests.serve.conftest import TOKEN
from tests.ui.conftest import EVIL, pages, training
from widenet.data.manifest import Manifest
from widenet.pictures.html import brief
from widenet.training.run_directory import RunDirectory

PLACES = ["/", "/run?name=untied", "/compare?run=untied&run=deep%2Ftied"]


def policy(reply):
    headers = {name.lower(): value for name, value in reply.headers.items()}
    return headers["content-security-policy"]


@pytest.mark.parametrize("place", PLACES)
def test_every_page_is_whole_and_forbids_what_it_does_not_send(place, shown):
    reply = shown.get(place)
    assert reply.status == 200
    page = Page(reply.body.decode())
    assert policy(reply) == policy(shown.get("/page/page.css"))
    assert "style-src 'self'" in policy(reply)
    assert [
        tag for tag, attributes in page.elements if "style" in attributes or "onclick" in attributes
    ] == []
    asked = [
        attributes[key] for _, attributes in page.elements for key in ("src", "href") if key in attributes
    ]
    assert [address for address in asked if "//" in address] == []


@pytest.mark.parametrize(
    "place",
    ["/page/", "/page/../app.py", "/page/%2e%2e/app.py", "/nothing", "/run/shop", "/log.jsonl", "/%00"],
)
def test_nothing_else_is_sent(place, shown):
    reply = shown.get(place)
    assert reply.status == 404
    page = Page(reply.body.decode())
    addresses = [attributes["href"] for tag, attributes in page.elements if tag in ("link", "a")]
    ways = [urljoin(f"http://here{quote(place, safe='/%')}", each) for each in addresses if each[0] != "#"]
    assert {"http://here/", "http://here/page/page.css"} <= {*ways}


def test_the_table_has_a_row_for_each_run(shown):
    page = Page(shown.get("/").body.decode())
    assert [attributes["data-live"] for tag, attributes in page.elements if tag == "tr" and attributes] == [
        "run deep/tied",
        "run untied",
    ]
    assert "2 runs in runs." in page.text
    some = Page(shown.get("/?metric=recall%405").body.decode())
    assert ("option", {"value": "recall@5", "selected": None}) in some.elements


def test_damaged_and_deleted_runs_leave_the_others(runs):
    with pages(runs) as running:
        assert "2 runs" in running.get("/").body.decode()
        (runs / "untied" / "fields.json").write_text("[")
        text = running.get("/").body.decode()
        assert "1 run in" in text
        assert "fields.json" in text
        shutil.rmtree(runs / "untied")
        assert "fields.json" not in running.get("/").body.decode()
        shutil.rmtree(runs)
        assert running.get("/").status == 200
        assert running.end()[0] == 0


def test_an_epoch_changes_the_version_that_open_pages_ask_for(runs):
    with training(runs / "untied") as run, pages(runs) as running:
        version = re.search(r'data-version="(\d+)"', running.get("/").body.decode())[1]
        assert running.get("/version").body.decode() == version
        run.log({"epoch": 2, "loss": 0.25, "ndcg@5": 0.5})
        assert int(running.get("/version").body) > int(version)
        row = running.get("/").body.decode()
        assert "2 of 3" in row
        assert "1 of them training now" in row


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost"}, 200),
    ],
)
@pytest.mark.parametrize("place", [*PLACES, "/page/ui.css"])
def test_pages_of_other_sites_may_not_ask(place, headers, status, shown):
    assert shown.get(place, **headers).status == status


def test_the_token_gives_a_cookie_and_nothing_is_shown_without(trained, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with pages(trained / "runs", "--token-file", tmp_path / "token") as running:
        for place in (*PLACES, "/version"):
            reply = running.get(place)
            assert reply.status == 401
            assert b"untied" not in reply.body
        assert running.get("/page/token.js").status == 200
        assert running.ask("POST", "/session", headers={"Authorization": "Bearer wrong"}).status == 401
        reply = running.ask("POST", "/session", headers={"Authorization": f"Bearer {TOKEN}"})
        assert reply.status == 204
        cookie = reply.headers["set-cookie"]
        assert TOKEN not in cookie
        assert {"httponly", "samesite=strict"} <= set(cookie.lower().split("; "))
        assert running.get("/", Cookie=cookie.partition(";")[0]).status == 200
        name = cookie.partition("=")[0]
        assert (
            name == f"widenet-ui-{running.port}"
        )  # a browser has one cookie of a name for all ports of a host
        assert running.get("/", Cookie=f"{name}=wrong").status == 401
        assert running.get("/", Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("/run", 404),
        ("/run?name=", 404),
        ("/run?name=..", 404),
        ("/run?name=../data", 404),
        ("/run?name=deep", 404),
        ("/run?name=untied/../untied", 404),
        ("/run?name=%2Fetc", 404),
        ("/run?name=%00%ff", 404),
        ("/data", 404),
        ("/compare?run=untied", 422),
        ("/compare?run=untied&run=untied", 422),
        ("/compare?run=untied&run=../data", 404),
        ("/compare?" + "&".join(f"run={number}" for number in range(13)), 422),
    ],
)
def test_only_runs_of_the_folder_are_shown(place, status, shown):
    assert shown.get(place).status == status


def test_a_run_says_its_numbers_and_its_part(shown, trained):
    page = Page(shown.get("/run?name=deep%2Ftied").body.decode())
    assert "finished: epoch 4 of 4" in page.text
    assert "Metrics: over the validation part." in page.text
    assert "kept: epoch 4" in page.texts["text"]
    assert "taste and next share their weights" in page.texts["title"]
    run = RunDirectory.open(trained / "runs" / "deep" / "tied")
    records = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert brief(records[-1]["loss"]) in page.texts["td"]


def test_hostile_names_damage_and_deletion_of_a_run_are_said(runs):
    shutil.move(runs / "untied", runs / EVIL)
    with pages(runs) as running:
        place = "/run?" + urlencode({"name": EVIL})
        page = Page(running.get(place).body.decode())
        assert page.texts["h1"] == [EVIL]
        assert "img" not in page.names
        (runs / EVIL / "network.json").write_text("{")
        reply = running.get(place)
        assert reply.status == 422
        assert "network.json" in Page(reply.body.decode()).text
        assert running.get("/compare?" + urlencode([("run", EVIL), ("run", "deep/tied")])).status == 422
        shutil.rmtree(runs / EVIL)
        reply = running.get(place)
        assert reply.status == 404


def test_the_data_of_a_run_are_counted_while_they_are_at_hand(runs, trained):
    manifest = Manifest.read(trained / "data")
    with pages(runs) as running:
        page = Page(running.get("/run?name=untied").body.decode())
        assert f"{manifest.fields['items'].num_entries['train']:,}" in page.texts["td"]
        (runs / "untied" / "machine.json").write_text(json.dumps({"data": "/nowhere"}))
        assert "/nowhere is gone" in running.get("/run?name=untied").body.decode()
