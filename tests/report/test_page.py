"""A page in a browser: it draws something, runs nothing and has nothing to complain of."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.browser import check_accessible, needs_chromium, visit
from widenet.report.write import write_report

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
        if (found := shutil.which(name))
    ),
    None,
)
QUIET = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=1000",
]


def shot(path, folder, width=1200, more=()):
    """What the browser shows of a page, uint8 [height, width, 3], and what it says on its console."""
    picture = folder / f"{width}{len(more)}.png"
    line = [
        BROWSER,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},4000",
        f"--screenshot={picture}",
        *more,
    ]
    ended = subprocess.run([*line, path.as_uri()], capture_output=True, text=True, check=True)
    with Image.open(picture) as opened:
        return np.asarray(opened.convert("RGB")), [
            said for said in ended.stderr.splitlines() if "CONSOLE" in said
        ]


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")
def test_a_browser_shows_both_kinds_of_page_and_finds_nothing_wrong(reported, tmp_path):
    one = write_report(reported / "run", tmp_path / "one.html")
    several = write_report([reported / "run", reported / "other"], tmp_path / "several.html")
    shown, said = shot(one, tmp_path)
    assert said == []
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) > 100
    painted = (shown != shown[-1, 0]).any(axis=(1, 2))
    assert painted.mean() > 0.5
    narrow, said = shot(several, tmp_path, width=500, more=["--blink-settings=preferredColorScheme=0"])
    assert said == []
    assert narrow[-1, 0].mean() < 60 < 200 < shown[-1, 0].mean()


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")
def test_what_a_page_says_on_the_console_is_heard(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('heard')</script>")
    assert len(shot(page, tmp_path)[1]) == 1


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_legible_on_a_phone(scheme, chromium, reported, tmp_path):
    for name, runs in (("one", reported / "run"), ("several", [reported / "run", reported / "other"])):
        path = write_report(runs, tmp_path / f"{name}.html")
        with visit(chromium, path.as_uri(), 390, color_scheme=scheme) as page:
            assert page.locator("h1").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            heights = page.locator("svg text").evaluate_all(
                "all => all.map(each => each.getBoundingClientRect().height)"
            )
            assert len(heights) > 5
            assert min(heights) >= 9
            check_accessible(page)
