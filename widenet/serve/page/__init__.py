"""The files of a service's page; they say nothing of a run, and ask the routes for the rest."""

from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

PLACES = {
    "/": "index.html",
    "/requests": "requests.html",
    "/page/requests.js": "requests.js",
    "/page/page.css": "page.css",
    "/page/page.js": "page.js",
    "/page/picker.js": "picker.js",
    "/page/inputs.js": "inputs.js",
    "/page/numbers.js": "numbers.js",
    "/page/rules.js": "rules.js",
    "/page/key.js": "key.js",
    "/page/elements.js": "elements.js",
    "/page/service.js": "service.js",
    "/page/icon.svg": "icon.svg",
}
"""The file of each path."""

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""What every answer for a browser carries: what the service itself sends may run and load, nothing else."""


class Page:
    """Answers with the page's files, which it reads once."""

    def __init__(self) -> None:
        folder = Path(__file__).parent
        self._contents = {place: (folder / name).read_bytes() for place, name in PLACES.items()}

    async def answer(self, request: Request) -> Response:
        """The file of a path of PLACES."""
        place = request.url.path
        return Response(self._contents[place], headers=HEADERS, media_type=KINDS[Path(PLACES[place]).suffix])
