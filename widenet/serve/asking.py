"""The routes whose requests wait for the model: a body comes in, and a callback gets the reply."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from widenet.serve.batches import ModelThread, Result, busy, failed, tell
from widenet.serve.malformed import sentence_of
from widenet.serve.messages import (
    Answer,
    Ask,
    Bounds,
    Explain,
    RecommendMany,
    Refusal,
    RefusedError,
    Score,
    Similar,
)
from widenet.spec.syntax import RepeatedKeyError, unique

_T = TypeVar("_T")

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "/v1/recommend": msgspec.json.Decoder(RecommendMany),
    "/v1/score": msgspec.json.Decoder(Score),
    "/v1/similar": msgspec.json.Decoder(Similar),
    "/v1/explain": msgspec.json.Decoder(Explain),
}
ROUTES = tuple(_DECODERS)
"""The routes, all of them for POST."""

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Reply:
    """An answer over HTTP.

    Attributes:
        status: Its status.
        body: Its body, JSON.
        headers: Further headers.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def refusing(cls, refused: RefusedError) -> "Reply":
        """Return the answer to a request that is refused."""
        return cls(refused.status, encode(Refusal(refused.mistake)), refused.headers)


BUSY = Reply.refusing(busy())
"""The answer to a request for which no row may wait."""


@dataclass(frozen=True)
class Asking:
    """Answers bodies of requests by the model.

    Attributes:
        model: The thread of the model.
        bounds: What a request may ask for.
    """

    model: ModelThread
    bounds: Bounds

    def ask(self, route: str, body: bytes | bytearray, done: Callable[[Reply], None]) -> None:
        """Answer the body of a request for a route; the running event loop calls `done`, perhaps at once."""
        try:
            asks, are_many = _asks_of(decoded(_DECODERS[route], body))
            self.bounds.check(asks)
            self.model.offer(asks, lambda results: done(_encoded(results, are_many)))
        except RefusedError as refused:
            reply = Reply.refusing(refused)
        except Exception as error:
            tell("a request failed", error)
            reply = Reply.refusing(failed())
        else:
            return
        done(reply)


def decoded(decoder: "msgspec.json.Decoder[_T]", body: bytes | bytearray) -> _T:
    """Read the body of a request; raises RefusedError."""
    try:
        request = decoder.decode(body)
        # msgspec takes the last of equal keys.
        json.loads(body, parse_int=str, parse_float=str, object_pairs_hook=unique)
        return request
    except RepeatedKeyError as error:
        raise RefusedError(422, "malformed", f"{error}. Keep one of them.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(422, "malformed", sentence_of(error, decoder.type, body)) from None


def _asks_of(post: Ask) -> tuple[Sequence[Ask], bool]:
    """Return the requests of a body, and whether it has them in a list; raises RefusedError."""
    if not isinstance(post, RecommendMany) or post.requests is None:
        return [post], False
    if post != RecommendMany(requests=post.requests):
        raise RefusedError(422, "contradiction", "requests goes without other fields.")
    return post.requests, True


def _encoded(results: Sequence[Result], are_many: bool) -> Reply:
    """Return the answers of the model, or the refusal of a request whose answers cannot be written."""
    try:
        return _reply(results, are_many)
    except Exception as error:
        tell("an answer could not be written", error)
        return Reply.refusing(failed())


def _reply(results: Sequence[Result], are_many: bool) -> Reply:
    """Return the answers of the model, or the refusal of the first that has none."""
    answers: list[Answer | msgspec.Raw] = []
    for place, result in enumerate(results):
        if isinstance(result, RefusedError):
            where = f"requests[{place}]: " if len(results) > 1 else ""
            mistake = result.mistake
            return Reply.refusing(
                RefusedError(result.status, mistake.code, where + mistake.message, result.headers)
            )
        answers.append(result)
    return Reply(200, encode({"results": answers} if are_many else answers[0]))
