"""Requests and answers, as JSON has them, refusals, and who may ask."""

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.datastructures import Headers
from starlette.requests import Request

from widenet.errors import OptionError, WidenetError

Unknown = Literal["refuse", "skip"]
Measure = Literal["cosine", "dot", "l2"]
HeldPart = Literal["validation", "heldout"]
FieldValue = str | float | list[str | float]
"""The numbers of a dense field are as many as it is wide; the size of a body bounds them."""
_SHORT = Meta(max_length=10_000)
_LARGEST = 3.4028234663852886e38
"""The largest float32."""
Ids = Annotated[list[str], _SHORT]
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Factor = Annotated[float, Meta(ge=0, le=_LARGEST)]
Length = Annotated[int, Meta(ge=1, le=1000)]
Condition = bool | int | float | str | Annotated[list[bool | int | float | str], _SHORT]


class Person(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Somebody to recommend to: a basket, or a user of the dataset.

    Attributes:
        items: Ids of items, for networks that read a sequence in order, the newest last.
        values: One number for each item, for networks trained with values.
        fields: What is known beside items, by field: ids of categories, or numbers of a dense field.
        user: Id of a user of the dataset, instead of items.
        unknown: Whether an unknown id refuses the request or is skipped. In filters it is skipped; unknown
            ids alone refuse the request, with "skip" those of `only` alone.
    """

    items: Ids | None = None
    values: Annotated[list[Number], _SHORT] | None = None
    fields: dict[str, FieldValue] | None = None
    user: str | None = None
    unknown: Unknown = "refuse"


class Recommend(Person, kw_only=True):
    """One request for recommendations.

    Attributes:
        k: Number of items.
        never: Ids of items to leave out.
        only: Ids of the items to choose from.
        include_seen: Whether items that the person has may be recommended.
        at_most: Largest number of items of each category, by attribute.
        where: Only items with these values, by attribute: true or false, or texts.
        weights: Factors on the scores of items, by id, from 0 on; those of other items are 1.
        part: For a user: recommend as an evaluation of this part does. The network sees neither it nor later
            parts, and the answer lists it.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    k: Length = 10
    never: Ids | None = None
    only: Ids | None = None
    include_seen: bool = False
    at_most: dict[str, int] | None = None
    where: dict[str, Condition] | None = None
    weights: Annotated[dict[str, Factor], _SHORT] | None = None
    part: HeldPart | None = None
    attributes: Ids | None = None


class RecommendMany(Recommend, kw_only=True):
    """One request for recommendations, or several under `requests`.

    Attributes:
        requests: The requests; then no other field is allowed beside it.
    """

    requests: Annotated[list[Recommend], Meta(min_length=1)] | None = None


class Score(Person, kw_only=True):
    """A request for the scores of some items.

    Attributes:
        candidates: Ids of the items.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    candidates: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    attributes: Ids | None = None


class Similar(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request for the items most similar to one.

    Attributes:
        item: Id of the item.
        k: Number of items.
        measure: Measure of nearness of the items' vectors.
        attributes: Attributes that each item of the answer has beside its title, by name.
    """

    item: str
    k: Length = 10
    measure: Measure = "cosine"
    attributes: Ids | None = None


class Explain(Person, kw_only=True):
    """A request for what each item of somebody's history adds to the logit of an item.

    Attributes:
        item: Id of the item.
    """

    item: str


class Search(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A search for items.

    Attributes:
        search: A part of a title, or the beginning of an id.
        attributes: Attributes of the items to return, with commas between them.
    """

    search: Annotated[str, Meta(min_length=1, max_length=200)]
    attributes: str = ""


class Item(msgspec.Struct, gc=False):
    """An item with its score.

    Attributes:
        item: Its id.
        title: Its title, or the id of an item without one.
        score: Its score: the activation of its unit, or what the route is asked for.
        attributes: The attributes that were asked for and that it has.
    """

    item: str
    title: str
    score: float
    attributes: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct):
    """The items of one request, best first, or in the order of its candidates.

    Attributes:
        fingerprint: SHA-256 of the weights that gave the answer.
        items: The items.
        unknown: Ids of the request that were skipped.
        held_out: The user's items of the part that the request names.
        is_personal: Of recommendations and scores: whether the network knows anything of the person. If not,
            everybody unknown gets the same.
    """

    fingerprint: str
    items: list[Item]
    unknown: list[str] = []
    held_out: "list[Found] | msgspec.UnsetType" = msgspec.UNSET
    is_personal: bool | msgspec.UnsetType = msgspec.UNSET


class Answers(msgspec.Struct):
    """The answers to several requests.

    Attributes:
        results: The answers, in the order of the requests.
    """

    results: list[Answer]


class Found(msgspec.Struct):
    """An item that a search found.

    Attributes:
        item: Its id.
        title: Its title, or the id of an item without one.
        attributes: The attributes that were asked for and that it has.
    """

    item: str
    title: str
    attributes: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Finding(msgspec.Struct):
    """The items that a search found.

    Attributes:
        fingerprint: SHA-256 of the weights of the model that was searched.
        items: The items, most popular first.
    """

    fingerprint: str
    items: list[Found]


class Category(msgspec.Struct):
    """An attribute of items.

    Attributes:
        kind: Type of its values: "text", "list" (of texts), "boolean", "number" or "date".
        values: Its most frequent values, at most 100. Without any, no rule may name it: numbers and dates.
    """

    kind: str
    values: list[Any]


class AskedField(msgspec.Struct):
    """What the network reads beside items.

    Attributes:
        name: Name of the field.
        kind: "sparse" or "sequence", which take ids, or "dense", which takes numbers.
        width: Number of features, or of numbers.
        shape: Channels and sizes of the axes, as the network sees the numbers; empty if they have no order.
        lowest: The smallest number in the data.
        highest: The largest.
    """

    name: str
    kind: str
    width: int
    shape: list[int]
    lowest: float
    highest: float


class About(msgspec.Struct):
    """Which model answers.

    Attributes:
        fingerprint: SHA-256 of its weights.
        run: Name of its run directory.
        num_items: Number of items that it can recommend.
        in_8_bits: Whether its wide matrices are whole numbers in 8 bits.
        has_users: Whether requests may name users of a dataset.
        parts: The parts of the users' items that were set aside.
        can_explain: Whether it says what each item of a history adds to a logit.
        attributes: The attributes of the items.
        reads_items: Whether it reads items by id.
        reads_values: Whether it was trained with a number for each item.
        fields: What it reads beside them.
    """

    fingerprint: str
    run: str
    num_items: int
    in_8_bits: bool
    has_users: bool
    parts: list[str]
    can_explain: bool
    attributes: dict[str, Category]
    reads_items: bool
    reads_values: bool
    fields: list[AskedField]


class Mistake(msgspec.Struct, omit_defaults=True):
    """Why a request has no answer.

    Attributes:
        code: A word for programs.
        message: A sentence.
        option: The field or the parameter that it is about.
    """

    code: str
    message: str
    option: str | None = None


class Refusal(msgspec.Struct):
    """An answer that is no success.

    Attributes:
        error: Why.
    """

    error: Mistake


class RefusedError(WidenetError):
    """A request that gets an error as its answer.

    Args:
        http_status: Status of the answer.
        code: A word for programs.
        rule: As in `WidenetError`.
        headers: Further headers of the answer.
        facts: The other facts of a `WidenetError`.
    """

    def __init__(
        self,
        http_status: int,
        code: str,
        rule: str,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(rule, **facts)
        self.http_status, self.code, self.headers = http_status, code, dict(headers or {})


def unavailable(code: str, rule: str) -> RefusedError:
    """Return the refusal of a request that may be sent again in a second."""
    return RefusedError(503, code, rule, {"Retry-After": "1"})


def malformed(error: Exception) -> RefusedError:
    """Return the refusal of what is no request, from the error of its reader.

    msgspec writes "Expected `int` >= 1 - at `$.requests[...].k`" or "Object contains unknown field `kk`".
    """
    what, _, path = str(error).partition(" - at `")
    field = _FIELD.fullmatch(what)
    option = field[2] if field else next(reversed(re.findall(r"\.(\w+)", path)), None)
    rule = what.replace("Expected ", "must be ").replace("`", "")
    if field:
        rule = "must be given" if field[1] == "missing required" else "is not a field of this request"
    return RefusedError(422, "malformed", rule, place=None if option else "the request", option=option)


_FIELD = re.compile(r"Object (missing required|contains unknown) field `(\w+)`")
Ask = Recommend | Score | Similar | Explain
Result = Answer | WidenetError
"""An answer, or why there is none."""


_T = TypeVar("_T")

_LEAST_TOKEN = 16
_LONGEST_TOKEN = 4096
_FOREIGN = frozenset(("cross-site", "same-site"))
_HOST = re.compile(r"(?:\[([^]]*)\]|([^:\[]*))(?::[0-9]*)?")
"""A Host header: an address in brackets, or another address or a name, and perhaps a port."""


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
        raise OptionError("of other machines needs `token_file`", option="host", value=host)
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
        if self.token is None or is_open:
            return
        given = headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, b"Bearer " + self.token):
            rule = "Authorization must be Bearer with the token of this service"
            raise RefusedError(401, "no_token", rule, {"WWW-Authenticate": "Bearer"})

    def _is_own(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        name = "" if found is None else found[1] or found[2]
        return name == "localhost" or name in self.names or _address(name) is not None

    async def decoded(self, request: Request, decoder: "msgspec.json.Decoder[_T]") -> _T:
        """Read the JSON body of a request as what a decoder gives; raises RefusedError."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "wrong_type", "Content-Type must be application/json")
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.max_bytes:
                raise RefusedError(413, "too_large", f"the body must have at most {self.max_bytes:,} bytes")
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise malformed(error) from None
