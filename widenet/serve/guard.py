"""Who may ask: names of the host, pages of other sites, the token, and sizes of bodies."""

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from widenet.errors import OptionError
from widenet.serve.requests import RefusedError

_T = TypeVar("_T")

_LEAST_TOKEN = 16
_LONGEST_TOKEN = 4096
_FOREIGN = frozenset(("cross-site", "same-site"))


def read_token(path: str | Path) -> bytes:
    """Read a token from a file; raises OptionError."""
    try:
        with Path(path).open("rb") as file:
            token = file.read(_LONGEST_TOKEN + 1).strip()
    except OSError as error:
        rule = f"cannot be read: {error.strerror}"
        raise OptionError(rule, place=path, option="token_file") from None
    if not _LEAST_TOKEN <= len(token) <= _LONGEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
        rule = f"must hold a token of at least {_LEAST_TOKEN} ASCII characters without blanks"
        raise OptionError(rule, place=path, option="token_file")
    return token


@lru_cache(64)
def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def guard_of(host: str, token_file: str | Path | None, allow_host: Sequence[str], max_bytes: int) -> "Guard":
    """Return the guard of an address; raises OptionError without a token where other machines may ask."""
    address = _address(host)
    if token_file is None and host != "localhost" and not (address is not None and address.is_loopback):
        raise OptionError("of other machines needs token_file", option="host", value=host)
    token = None if token_file is None else read_token(token_file)
    return Guard(token, frozenset(name.lower() for name in allow_host), max_bytes)


@dataclass(frozen=True)
class Guard:
    """Refuses requests before they are read.

    Attributes:
        token: The token that requests must carry; None: none.
        names: Names of the host, in lower case, beside localhost and addresses.
        max_bytes: Largest size of a body.
    """

    token: bytes | None
    names: frozenset[str]
    max_bytes: int

    def check(self, headers: Headers, is_open: bool) -> None:
        """Raise RefusedError for a request that must not be read.

        Args:
            headers: The headers of the request.
            is_open: Whether it needs no token.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            # A page of another site can give its name the address of this machine, but not change the name.
            raise RefusedError(
                421, "wrong_host", "Host must be an address, localhost, or an allowed name of this service"
            )
        own = f"http://{hosts[0]}", f"https://{hosts[0]}"
        is_foreign = any(origin.lower() not in own for origin in headers.getlist("origin"))
        if is_foreign or not _FOREIGN.isdisjoint(headers.getlist("sec-fetch-site")):
            raise RefusedError(403, "cross_site", "pages of other sites may not ask this service")
        if self.token is not None and not is_open:
            self._check_token(headers)

    def _check_token(self, headers: Mapping[str, str]) -> None:
        assert self.token is not None
        given = headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, b"Bearer " + self.token):
            raise RefusedError(
                401,
                "no_token",
                "Authorization must be Bearer with the token of this service",
                {"WWW-Authenticate": "Bearer"},
            )

    def _is_own(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name, bracket, port = name[1:].partition("]")
            port = port.removeprefix(":")
            if not bracket:
                return False
        else:
            name, _, port = name.partition(":")
        if port and not (port.isascii() and port.isdigit()):
            return False
        return name == "localhost" or name in self.names or _address(name) is not None

    async def _body(self, request: Request) -> bytes:
        headers = request.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "wrong_type", "Content-Type must be application/json")
        length = headers.get("content-length", "0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.max_bytes:
            raise self._too_large()
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.max_bytes:
                raise self._too_large()
        return bytes(body)

    async def decoded(self, request: Request, decoder: "msgspec.json.Decoder[_T]") -> _T:
        """Read the JSON body of a request as what a decoder gives; raises RefusedError."""
        try:
            return decoder.decode(await self._body(request))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(422, "malformed", str(error)) from None

    def _too_large(self) -> RefusedError:
        return RefusedError(413, "too_large", f"the body must have at most {self.max_bytes:,} bytes")
