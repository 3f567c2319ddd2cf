"""Who may see the pages: the guard of `widenet serve`, and a cookie for browsers, which carry no token."""

import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from widenet.serve.guard import Guard
from widenet.serve.messages import RefusedError


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
            raise RefusedError(404, "not_found", "there is no such page.")
        response = Response(status_code=204)
        response.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response
