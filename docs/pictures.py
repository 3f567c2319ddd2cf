"""Takes the pictures of docs/gallery.md: python docs/pictures.py RATINGS BOOKS FOLDER.

RATINGS has the columns user_id, book_id and rating, BOOKS book_id and title. It trains three networks in the
folder, unless they are there, and visits their pages with Playwright in Debian's Chromium.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

FIGURES = Path(__file__).parent / "figures"
WIDTH, HEIGHT = 1180, 760
PHONE = {"width": 390, "height": 760}
SETTINGS = {"narrow": (16, 0.01), "hasty": (64, 0.08)}
"""Units and learning rate of the runs beside that of the usual documents."""


def main(ratings: str, books: str, place: str) -> None:
    """Train, and take all pictures."""
    folder = Path(place)
    if not (folder / "report.html").exists():
        folder.mkdir(parents=True)
        train(folder, ratings, books)
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        with served(folder, "serve", "runs/usual", "--data", "data/books") as address:
            try_it(browser, address)
        with served(folder, "ui", "runs", "--allow-training", "--datasets", "data") as address:
            visit_runs(browser, address)
        take(browser, (folder / "report.html").as_uri(), "report", show_nothing)
        browser.close()


def train(folder: Path, ratings: str, books: str) -> None:
    """Make a dataset, four runs and a report."""
    words = ["--user", "user_id", "--item", "book_id", "--value", "rating", "--min-value", "4"]
    run(folder, "data", "ingest", ratings, *words, "--titles", books, "--out", "data/whole")
    parts = ["--validation", "0.1", "--heldout", "0.2"]
    run(folder, "data", "split", "data/whole", *parts, "--out", "data/books")
    for name, (units, rate) in SETTINGS.items():
        layers = [
            {"name": "history", "kind": "input", "field": "items", "scale": "rsqrt", "denoise": 0.3},
            {"name": "taste", "units": units, "activation": "tanh"},
            {"name": "next", "kind": "output", "field": "items"},
        ]
        optimizer = {"kind": "adam", "learning_rate": rate}
        training = {"epochs": 10, "batch_size": 256, "optimizer": optimizer}
        training |= {"evaluation": {"every_epochs": 1}}
        (folder / "network.json").write_text(json.dumps({"layers": layers}))
        (folder / "training.json").write_text(json.dumps(training))
        run(folder, "train", "network.json", "training.json", "--data", "data/books", "--out", f"runs/{name}")
    run(folder, "train", "--data", "data/books", "--out", "runs/usual")
    run(folder, "report", "runs/usual", "--data", "data/books", "--out", "report.html")


def run(folder: Path, *words: str) -> None:
    """Run a command of widenet."""
    subprocess.run([sys.executable, "-m", "widenet", *words], cwd=folder, check=True)


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """Start a service on a free port, and give its address."""
    line = [sys.executable, "-u", "-m", "widenet", *words, "--port", "0"]
    with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next(found[0] for each in process.stderr if (found := re.search(r"http://\S+", each)))
        try:
            yield address
        finally:
            process.terminate()


def take(
    browser: Browser, address: str, name: str, prepare: Callable[[Page], object], **options: Any
) -> None:
    """Visit an address, prepare the page, and take its picture."""
    settings = {"viewport": {"width": WIDTH, "height": HEIGHT}, **options}
    with browser.new_context(**settings) as context:
        page = context.new_page()
        page.goto(address)
        prepare(page)
        page.wait_for_timeout(500)
        page.screenshot(path=FIGURES / f"{name}.png")
        print(f"wrote {FIGURES / name}.png")


def show_nothing(page: Page) -> None:
    """Leave a page as it opens."""


def try_it(browser: Browser, address: str) -> None:
    """Recommendations on a desktop and on a phone in the dark."""

    def choose(page: Page) -> None:
        for text in ("The Hobbit", "Emma"):
            page.get_by_role("combobox", name="Items", exact=True).fill(text)
            page.locator("[role=option]").first.click()
        page.locator("#items > li").nth(9).wait_for()

    def compare(page: Page) -> None:
        choose(page)
        page.get_by_role("button", name="Similar").nth(1).click()
        page.locator("#neighbours > li").first.wait_for()
        page.evaluate("scrollTo(0, 0)")

    take(browser, address, "page", compare)
    take(browser, address, "phone", choose, viewport=PHONE, color_scheme="dark")


def visit_runs(browser: Browser, address: str) -> None:
    """The table of runs, and a run."""
    take(browser, address, "runs", show_nothing)
    take(browser, f"{address}/run?name=usual", "run", show_nothing)


if __name__ == "__main__":
    main(*(str(Path(each).resolve()) for each in sys.argv[1:]))
