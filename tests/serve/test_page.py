"""The page in a real Chromium: by mouse, by keyboard, on a phone, and with titles that are HTML."""

import re

import pytest

from tests.browser import WIDTHS, check_accessible, expect, needs_chromium, visit
from tests.serve.conftest import NETWORK, TOKEN, service
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.runs import Model, train

pytestmark = needs_chromium

HOSTILE = "<img src=x onerror=alert(1)>"
TITLES = ["Emma", "Persuasion", "Emma", HOSTILE, None, *(f"Tales, book {book}" for book in range(5, 40))]
NUM = len(TITLES)


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A dataset and a run of books: two of one title, one without, and one whose title is HTML."""
    folder = tmp_path_factory.mktemp("books")
    rows = [[(user + step * step) % NUM for step in range(1, 6)] for user in range(80)]
    data = dataset_from_lists(
        folder / "data",
        [*(sorted(set(row)) for row in rows), []],
        ids=[*(f"u{row}" for row in range(80)), "new"],
        item_ids=[f"b{item}" for item in range(NUM)],
        titles=TITLES,
    )
    train(NETWORK, {"epochs": 2, "shards": 3}, data, folder / "books")
    return folder


@pytest.fixture(scope="module")
def model(books):
    return Model.load(books / "books", "cpu")


@pytest.fixture(scope="module")
def address(books):
    with service(books / "books", "--data", books / "data") as running:
        yield f"http://127.0.0.1:{running.port}/"


def names(page, where="#items"):
    return page.locator(f"{where} > li .name").all_inner_texts()


def add(page, text, where="Items"):
    """Type a text and click the first item that is found."""
    box = page.get_by_role("combobox", name=where, exact=True)
    box.fill(text)
    page.locator("[role=option]").first.click()


def expect_items(page, items):
    """Wait for recommendations; the page writes an id beside a title that is another word, and attributes."""
    texts = [one.title if one.title == one.item else f"{one.title} {one.item}" for one in items]
    begins = [re.compile(rf"^\s*{re.escape(text)}(?!\w)") for text in texts]
    expect(page.locator("#items > li .name")).to_have_text(begins)


@pytest.mark.parametrize("width", WIDTHS)
def test_recommendations_change_with_each_item(width, chromium, address, model):
    with visit(chromium, address, width) as page:
        assert "Add an item" in page.locator("#none").inner_text()
        add(page, "persua")
        expect_items(page, model.recommend(["b1"], k=10))
        add(page, "b7")
        expect_items(page, model.recommend(["b1", "b7"], k=10))
        best = model.recommend(["b1", "b7"], k=10)
        scores = page.locator("#items .score").all_inner_texts()
        assert [float(text.split()[-1]) for text in scores] == [
            pytest.approx(one.score, rel=5e-3) for one in best
        ]
        page.get_by_role("button", name="Remove Persuasion").click()
        expect_items(page, model.recommend(["b7"], k=10))
        page.get_by_label("Number of items").select_option("5")
        expect_items(page, model.recommend(["b7"], k=5))
        page.locator("#items").get_by_role("button", name="Add").first.click()
        first = model.recommend(["b7"], k=1)[0].item
        expect_items(page, model.recommend(["b7", first], k=5))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#run").inner_text() == "books"
        assert page.locator("#fingerprint").inner_text() == model.fingerprint()[:12]


def test_the_keyboard_alone_adds_removes_and_reads_similar_items(chromium, address, model):
    with visit(chromium, address) as page:
        page.locator("#basket-input:focus").wait_for()  # the box has the focus from the start
        page.keyboard.type("emma")
        box = page.get_by_role("combobox", name="Items", exact=True)
        expect(page.locator("[role=option]")).to_have_text(["Emma b0", "Emma b2"])
        assert box.get_attribute("aria-expanded") == "true"
        marked = page.locator("[role=option][aria-selected=true]")
        assert marked.inner_text() == "Emma b0"
        page.keyboard.press("ArrowDown")
        assert marked.inner_text() == "Emma b2"
        assert box.get_attribute("aria-activedescendant") == marked.get_attribute("id")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect_items(page, model.recommend(["b2"], k=10))
        page.keyboard.type("x")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        assert box.input_value() == ""
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        for name in ("Similar Emma", "Remove Emma"):
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name
            assert page.evaluate(outline) == "solid"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "basket-input"
        expect(page.locator("#items > li")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_titles_are_text_and_every_item_has_a_name(scheme, chromium, address):
    with visit(chromium, address, color_scheme=scheme) as page:
        add(page, "<img")
        page.locator("#items > li").first.wait_for()
        assert names(page, "#basket .chosen") == [f"{HOSTILE} b3"]
        page.get_by_role("button", name=f"Similar {HOSTILE}").click()
        page.locator("#like:focus").wait_for()
        assert page.locator("#like").inner_text() == f"Similar to {HOSTILE}"
        add(page, "b4")
        assert names(page, "#basket .chosen")[1] == "b4"
        assert page.locator("img").count() == 0
        page.get_by_role("combobox", name="Items", exact=True).fill("no such title")
        page.locator("#basket .drop .note").wait_for()
        assert "No further item" in page.locator("#said").inner_text()
        brightness = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        )
        assert (brightness < 60) == (scheme == "dark")


def test_the_token_is_asked_for_and_kept_in_memory_alone(chromium, books, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with service(books / "books", "--token-file", tmp_path / "token") as running:
        address = f"http://127.0.0.1:{running.port}/"
        with visit(chromium, address, expected=["status of 401"]) as page:
            page.get_by_label("Token of this service").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.locator("#token")).to_have_value("")
            assert re.search("Bearer", page.get_by_role("alert").inner_text())
            assert page.get_by_role("main").is_hidden()
            page.get_by_label("Token of this service").fill(TOKEN)
            page.keyboard.press("Enter")
            page.get_by_role("combobox", name="Items", exact=True).wait_for()
            add(page, "persua")
            page.locator("#items > li").first.wait_for()
            assert page.get_by_role("alert").count() == 0
            kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
            assert TOKEN not in page.evaluate(kept)
            page.reload()
            page.get_by_label("Token of this service").wait_for()
            page.goto(address + "requests")
            page.get_by_label("Token of this service").fill(TOKEN)
            page.keyboard.press("Enter")
            page.get_by_role("heading", name="POST /v1/recommend").wait_for()
            assert 'Authorization: Bearer $TOKEN"' in page.locator("pre").first.inner_text()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A linear network over books with attributes, and users some of whose items were set aside."""
    folder = tmp_path_factory.mktemp("shop")
    rows = "".join(f"u{user},{(user + step * step) % 12}\n" for user in range(30) for step in range(1, 6))
    (folder / "b.csv").write_text("user,item\n" + rows)
    kinds = ["verse", "prose", "play"]
    lines = "".join(
        f"{item},{kinds[item % 3]},{str(item % 2 == 0).lower()},{HOSTILE * (item % 2 + 1)},"
        f"2026-01-{item + 1:02},{item / 4},{item}\n"
        for item in range(12)
    )
    (folder / "i.csv").write_text("item,genre,in_stock,a note,since,price,pages\n" + lines)
    ingest([folder / "b.csv"], folder / "all", items=folder / "i.csv", items_id="item")
    split(folder / "all", folder / "data", heldout=0.3)
    layers = [dict(layer) for layer in NETWORK["layers"]]
    layers[1]["activation"] = "linear"
    train({"layers": layers}, {"epochs": 2, "shards": 2}, folder / "data", folder / "run")
    with service(folder / "run", "--data", folder / "data") as running:
        yield f"http://127.0.0.1:{running.port}/", Model.load(folder / "run", "cpu"), folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rules_reasons_and_what_was_set_aside(width, scheme, chromium, shop):
    address, model, folder = shop
    with visit(chromium, address, width, color_scheme=scheme) as page:
        add(page, "0")
        page.get_by_text("Filters", exact=True).click()
        page.get_by_label("Only with genre").select_option("verse")
        expect_items(page, model.recommend(["0"], where={"genre": "verse"}))
        page.get_by_label("Only with genre").select_option("any")
        page.get_by_label("Only with in_stock").select_option("true")
        page.get_by_label("At most of each genre").fill("1")
        page.keyboard.press("Tab")
        rules = {"where": {"in_stock": True}, "at_most": {"genre": 1}}
        expect_items(page, model.recommend(["0"], **rules))
        assert page.locator("#filters summary").inner_text() == "Filters (2)"
        page.locator("#items").get_by_role("button", name="Why").first.click()
        page.get_by_role("heading", name="Why").wait_for()
        assert names(page, "#neighbours") == ["0"]
        page.get_by_label("A user of the dataset").check()
        page.get_by_label("Id of the user").fill("u3")
        page.get_by_label("As before the set-aside items").check()
        page.get_by_label("Only with in_stock").select_option(index=0)
        page.get_by_label("At most of each genre").fill("")
        page.keyboard.press("Tab")
        held = Dataset.open(folder / "data")
        aside = held.sparse("items", held.rows_of(["u3"]), "heldout").num_entries
        expect(page.locator("#none")).to_have_text(
            f"Items that were set aside: {aside}; of these here: {aside}."
        )
        assert page.locator("#items mark").count() == aside
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        check_accessible(page)
