"""What the pages of a run, of a comparison and of a dataset show, in a real Chromium."""

import shutil

import pytest

from tests.browser import check_accessible, expect, needs_chromium, visit
from tests.ui.conftest import pages
from widenet.data.ingest import ingest
from widenet.plan.layout import Job
from widenet.plan.memory import memory
from widenet.plan.numbers import amount
from widenet.report.subject import Subject
from widenet.runs import Model
from widenet.training.run_directory import RunDirectory

pytestmark = needs_chromium

RUNS = ["untied", "deep/tied"]
FIRST_DAY = 1_600_000_000
LENGTHS = [sum(user % (item + 1) == 0 for item in range(40)) for user in range(60)]
SHARES = {
    name: f"{sum(low <= length < 2 * low for length in LENGTHS) / 60:.1%}"
    for name, low in {
        "0": 0,
        "1": 1,
        "2 to 3": 2,
        "4 to 7": 4,
        "8 to 15": 8,
        "16 to 31": 16,
        "32 to 63": 32,
    }.items()
}
"""Of the users of "sales", by the number of their items."""


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """The runs, which keep an evaluation, and "sales": 40 items, few of them popular, on 101 days."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copytree(trained / "runs", folder / "runs")
    for name in RUNS:
        Model.load(folder / "runs" / name, "cpu").evaluate(trained / "data", "validation", keep=True)
    lines = [
        f"u{user},i{item},{FIRST_DAY + 86_400 * ((user * 7 + item * 13) % 101)}"
        for user in range(60)
        for item in range(40)
        if user % (item + 1) == 0
    ]
    (folder / "sales.csv").write_text("user,item,time\n" + "\n".join(lines))
    (folder / "items.csv").write_text(
        "item,title\n" + "\n".join(f"i{item},Tales {item}" for item in range(40))
    )
    ingest(
        [folder / "sales.csv"], folder / "sales", time="time", keep_times=True, titles=folder / "items.csv"
    )
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with pages(folder / "runs", "--data", folder / "sales") as running:
        yield f"http://127.0.0.1:{running.port}/"


def section(page, title):
    """The section of a page with a heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title, exact=True))


def rows(table):
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def test_a_run_shows_its_memory_time_and_log(chromium, address, folder):
    run = RunDirectory.open(folder / "runs" / "deep" / "tied")
    subject = Subject("tied", run)
    with visit(chromium, address + "run?name=deep%2Ftied", 390) as page:
        manifest = run.dataset().manifest
        needed = memory(Job(run.layout, manifest.entries_per_example, manifest.num_examples))
        sizes = [size for size in vars(needed).values() if size > 0]
        assert [size for _, size in rows(section(page, "Plan"))] == [
            amount(size) for size in [*sizes, needed.total]
        ]
        phases = rows(section(page, "Time").locator("table").first)
        assert [name for name, *_ in phases] == [
            "steps", "waiting for examples", "evaluation", "checkpoints", "in all"
        ]  # fmt: skip
        numbers = section(page, "Numbers")
        numbers.locator("summary").click()
        log = rows(numbers)
        assert [epoch for epoch, *_ in log] == ["1", "2", "3", "4"]
        assert [float(loss) for _, loss, *_ in log] == [
            pytest.approx(record["loss"], rel=1e-3) for record in subject.records
        ]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)


def test_a_dataset_shows_its_lengths_and_what_is_found(chromium, address):
    with visit(chromium, address + "data", 390) as page:
        part = section(page, "items, train")
        lengths = part.locator("figure", has=page.get_by_role("img", name="items: entries of each user"))
        texts = lengths.locator("svg text").all_text_contents()
        assert dict(zip(texts[::2], texts[1::2], strict=True)) == SHARES
        page.get_by_label("Find users by id, and items by id or title").focus()
        page.keyboard.type("tales 3")
        expect(page.locator("#found li").first).to_have_text("Tales 3 i3: 15 entries")
        page.keyboard.press("Control+A")
        page.keyboard.type("u1")
        page.get_by_role("link", name="u12", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="User u12").wait_for()
        had = page.locator("#found li").all_inner_texts()
        assert sorted(had) == sorted(f"Tales {item}" for item in range(40) if 12 % (item + 1) == 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)
