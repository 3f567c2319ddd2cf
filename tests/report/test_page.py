"""A page in a browser: it draws something, runs nothing and has nothing to complain of."""

import pytest

from tests.browser import check_accessible, needs_chromium, visit
from widenet.report.write import write_report


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
