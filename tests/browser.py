"""What the tests of pages share: a real Chromium, visits that must be quiet, and axe-core's rules."""

import importlib.util
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

LACKS = [
    name
    for name in ("msgspec", "prometheus_client", "starlette", "uvicorn", "uvloop", "httptools")
    if importlib.util.find_spec(name) is None
]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = [
    *LACKS,
    *(["playwright"] if importlib.util.find_spec("playwright") is None else []),
    *([] if CHROMIUM else ["chromium"]),
]

needs_chromium = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{MISSING} are not installed; `make test-page` installs the libraries, and Debian has chromium",
)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = [390, 1280]


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def visit(chromium, address, width=1280, expected=(), **options):
    """A page that must ask its own host alone and write nothing but expected words on the console."""
    with chromium.new_context(viewport={"width": width, "height": 844}, **options) as context:
        page = context.new_page()
        page.set_default_timeout(30_000)
        said, hosts = [], set()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(address)
        yield page
        unexpected = [text for text in said if not any(word in text for word in expected)]
        assert unexpected == [], unexpected
        assert hosts == {urlsplit(address).netloc}


def expect(locator):
    """An expectation that waits until it is met."""
    from playwright.sync_api import expect as expectation

    expectation.set_options(timeout=30_000)
    return expectation(locator)


def check_accessible(page):
    """Fail for what axe-core finds serious or critical on a page."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        pytest.skip("axe_playwright_python is not installed; `make test-page` installs it")
    (folder,) = importlib.util.find_spec("axe_playwright_python").submodule_search_locations
    page.evaluate((Path(folder) / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run().then(result => result.violations)")
    serious = [
        (one["id"], [node["html"] for node in one["nodes"]][:5])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
