"""Answers to browsers: pages, and pages that say why there is no other."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

import widenet.serve.page as shared
from widenet.errors import WidenetError
from widenet.pictures.html import Html, tag
from widenet.serve.messages import RefusedError
from widenet.ui.pages import page

_T = TypeVar("_T")


def readable(read: Callable[[], _T]) -> _T:
    """Return what reading runs gives; raises RefusedError for files that went away or are damaged."""
    try:
        return read()
    except (WidenetError, OSError) as error:
        raise RefusedError(422, "unreadable", str(error)) from None


def html(text: Html, status: int = 200) -> Response:
    """Return a page as an answer, which nobody keeps."""
    body = text.encode("utf-8", errors="xmlcharrefreplace")
    return Response(body, status, {**shared.HEADERS, "Cache-Control": "no-store"}, "text/html; charset=utf-8")


def refusal(refused: RefusedError, version: int) -> Response:
    """The page that says why there is no other; for a missing token, it asks for the token."""
    sentence = str(refused)
    first, *rest = sentence.split(" ")
    sentence = " ".join([first.capitalize() if first.isalpha() and first.islower() else first, *rest])
    if refused.http_status != 401:
        content = [tag("p", sentence, class_="card")]
        return html(page("Not here", "", content, version=version), refused.http_status)
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
