"""Curves for a browser: every finite number of every line, at its place, and as few letters as it needs."""

import json
import math
import re

import pytest

from tests.browser import check_accessible, expect, needs_chromium, visit
from tests.pages import Page
from tests.ui.conftest import pages, training
from widenet.pictures.curves import COLOURS
from widenet.ui.pages import strict
from widenet.ui.plots import plot


@pytest.fixture(scope="module")
def address(shown):
    return f"http://127.0.0.1:{shown.port}/"


def numbers(html):
    (figure,) = [found for name, found in Page(html).elements if name == "figure"]
    return json.loads(figure["data-numbers"])


def test_lines_share_an_axis_and_lack_numbers_where_they_have_none():
    found = numbers(plot("recall", {"a<": [(1, 0.125), (3, 1 / 3)], "b": [(2, math.nan), (4, 5.0)]}))
    assert found["names"] == ["a<", "b"]
    assert found["colours"] == list(COLOURS[:2])
    assert found["xs"] == [1, 3, 4]
    assert found["ys"] == [[0.125, 0.333333, None], [None, None, 5]]


def test_the_kept_epoch_is_marked_and_the_policy_of_pages_takes_nothing_away():
    html = plot("loss", {'style="x"': [(1, 2.0)]}, mark=(1.0, "kept: epoch 1"))
    assert numbers(strict(html)) == numbers(html)
    assert numbers(html)["mark"] == [1, "kept: epoch 1"]
    assert Page(html).texts["b"] == ["loss"]


def test_without_a_finite_number_a_figure_says_so():
    assert "no values" in Page(plot("loss", {"loss": [(1, math.inf)]})).text
    assert "no values" in Page(plot("loss", {})).text


def curve(page, name="loss"):
    """The figure of a curve, and what of it takes the keyboard."""
    figure = page.locator("figure.plot", has=page.get_by_role("img", name=name)).first
    return figure, figure.get_by_role("img")


@needs_chromium
def test_the_arrow_keys_and_the_pointer_read_a_curve(chromium, address):
    with visit(chromium, address + "run?name=deep%2Ftied") as page:
        figure, drawn = curve(page)
        said, legend = figure.locator("output"), figure.locator(".u-legend")
        drawn.focus()
        page.keyboard.press("ArrowRight")
        expect(said).to_contain_text("epoch 1, loss ")
        page.keyboard.press("End")
        expect(said).to_contain_text("epoch 4, loss ")
        page.keyboard.press("ArrowLeft")
        expect(said).to_contain_text("epoch 3, loss ")
        value = said.inner_text().removeprefix("epoch 3, loss ")
        expect(legend).to_contain_text(value)
        page.keyboard.press("Tab")
        expect(said).to_have_text("")
        expect(legend).not_to_contain_text(value)
        box = drawn.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 2 / 3, box["y"] + 20)
        expect(legend).to_contain_text(value)


@needs_chromium
def test_a_curve_is_zoomed_by_mouse_and_by_keyboard_and_stays_so_when_an_epoch_ends(chromium, runs):
    with (
        training(runs / "untied") as run,
        pages(runs) as running,
        visit(chromium, f"http://127.0.0.1:{running.port}/run?name=untied") as page,
    ):
        run.log({"epoch": 2, "loss": 0.5, "ndcg@5": 0.4})
        run.log({"epoch": 3, "loss": 0.25, "ndcg@5": 0.4})
        expect(page.get_by_role("status").first).to_have_text("training: epoch 3 of 3")
        figure, drawn = curve(page)
        whole = figure.get_by_role("button", name="Whole range")
        box = drawn.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 30, steps=4)
        page.mouse.up()
        whole.click()
        expect(whole).to_be_hidden()
        page.keyboard.press("End")
        page.keyboard.press("+")
        expect(whole).to_be_visible()
        run.log({"epoch": 4, "loss": 0.125, "ndcg@5": 0.4321})
        expect(page.locator("[data-live=log] td").nth(1)).to_have_text("0.125")
        expect(whole).to_be_visible()
        assert page.evaluate("document.activeElement.role") == "img"
        page.keyboard.press("End")
        expect(figure.locator("output")).to_contain_text("epoch 4, loss 0.125")
        page.keyboard.press("Escape")
        expect(whole).to_be_hidden()
        run.log({"epoch": 5, "loss": 0.125, "ndcg@5": 0.4321, "ndcg@9": 0.5})
        figure, drawn = curve(page, re.compile(r"^ndcg\. "))
        figure.get_by_text("Numbers").click()
        drawn.focus()
        page.keyboard.press("End")
        page.keyboard.press("+")
        run.log({"epoch": 6, "loss": 0.125, "ndcg@5": 0.4321, "ndcg@9": 0.5, "ndcg@20": 0.75})
        expect(figure.locator("details tbody tr")).to_have_count(6)
        expect(figure.locator("details th")).to_have_text(["epoch", "ndcg@5", "ndcg@20", "ndcg@9"])
        expect(figure.get_by_role("button", name="Whole range")).to_be_visible()
        assert page.evaluate("document.activeElement.ariaLabel").startswith("ndcg. ")
        page.keyboard.press("End")
        expect(figure.locator("output")).to_contain_text("epoch 6, ndcg@5 0.4321, ndcg@20 0.75, ndcg@9 0.5")


@needs_chromium
def test_the_numbers_of_a_curve_are_a_table(chromium, address):
    with visit(chromium, address + "compare?run=untied&run=deep%2Ftied") as page:
        figure, _ = curve(page, "ndcg@5")
        figure.get_by_text("Numbers").focus()
        page.keyboard.press("Enter")
        rows = figure.locator("details tr")
        expect(rows).to_have_count(5)
        assert rows.first.locator("th").all_inner_texts() == ["epoch", "untied", "deep/tied"]
        assert rows.nth(4).locator("td").all_inner_texts()[:2] == ["4", "\u2013"]
        check_accessible(page)


@needs_chromium
def test_a_line_is_hidden_by_the_keyboard(chromium, address):
    with visit(chromium, address + "compare?run=untied&run=deep%2Ftied") as page:
        figure, drawn = curve(page, "ndcg@5")
        drawn.wait_for()
        line = figure.get_by_role("button", name="untied")
        assert line.get_attribute("aria-pressed") == "true"
        line.focus()
        page.keyboard.press("Enter")
        expect(line).to_have_attribute("aria-pressed", "false")
