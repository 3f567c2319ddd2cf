"""Answers to browsers: pages, pages that say why there is no other, and a cookie for who may see them."""

import hmac
import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

import widenet.serve.page as shared
from widenet.errors import WidenetError
from widenet.pictures.html import Html, tag
from widenet.serve.requests import Guard, RefusedError
from widenet.ui.pages import page


def html(text: Html, status: int = 200) -> Response:
    """Return a page as an answer, which nobody keeps."""
    body = text.encode("utf-8", errors="xmlcharrefreplace")
    return Response(body, status, {**shared.HEADERS, "Cache-Control": "no-store"}, "text/html; charset=utf-8")


def refusal(error: WidenetError | OSError, version: int) -> Response:
    """The page that says why there is no other; for a missing token, it asks for the token."""
    sentence, status = str(error), error.http_status if isinstance(error, RefusedError) else 422
    if status != 401:
        content = [tag("p", sentence, class_="card")]
        return html(page("Not here", "", content, version=version), status)
    field = tag("input", id="token", type="password", autocomplete="off", required=True)
    form = tag(
        "form",
        tag("label", "Token of these pages", for_="token"),
        tag("div", field, tag("button", "Use"), class_="line"),
        tag("p", "Your browser forgets it when you close it.", class_="note"),
        id="key",
        class_="card",
    )
    return html(page("Who may look", sentence, [form], scripts=["token.js"]), 401)


def always(status: int, sentence: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return a handler that answers with one sentence."""

    async def answer(request: Request, error: Exception) -> Response:
        del error
        up = "../" * (request.url.path.count("/") - 1)
        return html(page("Not here", "", [tag("p", sentence, class_="card")], up=up), status)

    return answer


class Session:
    """Lets requests pass that carry the token, or the cookie that whoever showed the token was given.

    The cookie is made anew with each process, holds nothing of the token, and ends with the browser.

    Args:
        guard: The guard; without a token it asks for none.
        port: The port of the pages: browsers send the cookies of a host to all its ports.
    """

    def __init__(self, guard: Guard, port: int) -> None:
        self._guard, self._secret = guard, secrets.token_hex(32)
        self._cookie = f"widenet-ui-{port}"

    def check(self, request: Request, is_open: bool) -> None:
        """Raise RefusedError for a request that must not be answered.

        Args:
            request: The request.
            is_open: Whether it needs no token.
        """
        given = request.cookies.get(self._cookie, "").encode("latin-1", "replace")
        has_cookie = hmac.compare_digest(given, self._secret.encode())
        self._guard.check(request.headers, is_open or has_cookie)

    async def begin(self, request: Request) -> Response:
        """Give the cookie to a request, which carries the token."""
        del request
        if self._guard.token is None:
            raise RefusedError(404, "not_found", "there is no such page")
        response = Response(status_code=204)
        response.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response
