"""The pages in a real Chromium: live, by mouse and by keyboard, on a phone, in the dark."""

import shutil

import pytest

from tests.browser import WIDTHS, check_accessible, expect, needs_chromium, visit
from tests.ui.conftest import EVIL, pages, training

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def address(shown):
    return f"http://127.0.0.1:{shown.port}/"


def names(page):
    return page.locator("#rows > tr:visible a").all_inner_texts()


def fits(page, width):
    return page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_table_fits_and_axe_finds_nothing_serious(width, scheme, chromium, address):
    with visit(chromium, address, width, color_scheme=scheme) as page:
        assert names(page) == ["deep/tied", "untied"]
        assert fits(page, width)
        check_accessible(page)


def test_runs_are_sorted_and_found(chromium, address):
    with visit(chromium, address) as page:
        page.get_by_role("button", name="Epochs").click()
        head = page.get_by_role("columnheader", name="Epochs")
        assert head.get_attribute("aria-sort") == "descending"
        assert names(page) == ["deep/tied", "untied"]
        page.get_by_role("button", name="Epochs").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert names(page) == ["untied", "deep/tied"]
        page.get_by_role("button", name="Run", exact=True).click()
        assert names(page) == ["deep/tied", "untied"]
        page.get_by_label("Find").fill("0.05 UNTIED")
        assert names(page) == ["untied"]
        assert page.locator("#found").inner_text() == "1 found."
        page.get_by_label("Metric").select_option("recall@5")
        page.get_by_role("button", name="recall@5").wait_for()


def test_an_epoch_a_new_run_and_a_deleted_one_show_by_themselves(chromium, runs):
    with (
        training(runs / "untied") as run,
        pages(runs) as running,
        visit(chromium, f"http://127.0.0.1:{running.port}/") as page,
    ):
        row = page.locator('#rows > tr[data-live="run untied"]')
        assert "1 of 3" in row.inner_text()
        page.get_by_label("Compare untied").check()
        page.get_by_label("Compare untied").focus()
        run.log({"epoch": 2, "loss": 0.25, "ndcg@5": 0.4321})
        expect(row).to_contain_text("0.4321")
        expect(row).to_contain_text("2 of 3")
        assert page.get_by_label("Compare untied").is_checked()
        assert page.evaluate("document.activeElement.value") == "untied"
        shutil.copytree(runs / "deep" / "tied", runs / "newest")
        expect(page.locator("#rows > tr")).to_have_count(3)
        expect(page.locator("[data-live=count]")).to_contain_text("3 runs")
        shutil.rmtree(runs / "deep")
        expect(page.locator("#rows > tr")).to_have_count(2)
        shutil.copytree(runs / "newest", runs / EVIL)
        expect(page.get_by_role("link", name=EVIL)).to_have_count(1)
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["run?name=deep%2Ftied", "compare?run=untied&run=deep%2Ftied"])
def test_a_run_and_a_comparison_fit_and_axe_finds_nothing_serious(place, width, scheme, chromium, address):
    with visit(chromium, address + place, width, color_scheme=scheme) as page:
        assert page.locator("section").count() > 1
        assert fits(page, width)
        check_accessible(page)


def test_an_epoch_shows_on_the_page_of_its_run_and_a_deleted_run_is_said(chromium, runs):
    with (
        training(runs / "untied") as run,
        pages(runs) as running,
        visit(
            chromium, f"http://127.0.0.1:{running.port}/run?name=untied", expected=["status of 404"]
        ) as page,
    ):
        expect(page.get_by_role("status").first).to_have_text("training: epoch 1 of 3")
        run.log({"epoch": 2, "loss": 0.25, "ndcg@5": 0.4321})
        expect(page.get_by_role("status").first).to_have_text("training: epoch 2 of 3")
        expect(page.locator("[data-live=log] td", has_text="0.25")).to_have_count(1)
        expect(page.locator("[data-live=curves] circle title").nth(1)).to_have_text("loss, epoch 2: 0.25")
        (runs / "untied").rename(runs.parent / "away")
        expect(page.locator("main")).to_contain_text("holds no run of this name")
        (runs.parent / "away").rename(runs / "untied")
        expect(page.get_by_role("status").first).to_have_text("training: epoch 2 of 3")


def test_pages_that_have_ended_say_so(chromium, trained):
    expected = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
    with (
        pages(trained / "runs") as running,
        visit(chromium, f"http://127.0.0.1:{running.port}/", expected=expected) as page,
    ):
        page.wait_for_load_state()
        assert page.locator("#lost").is_hidden()
        assert running.end()[0] == 0
        page.get_by_role("alert").wait_for()
        assert "does not answer" in page.get_by_role("alert").inner_text()
