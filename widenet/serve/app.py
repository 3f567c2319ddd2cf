"""The routes: read a request, ask the model's thread, write the answer; and their OpenAPI document."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from widenet.errors import WidenetError, worded
from widenet.serve import requests
from widenet.serve.batches import Follower, ModelThread, tell, too_late
from widenet.serve.page import PLACES, Page
from widenet.serve.requests import (
    About,
    Answer,
    Answers,
    Ask,
    Explain,
    Finding,
    Guard,
    Mistake,
    RecommendMany,
    Refusal,
    RefusedError,
    Score,
    Search,
    Similar,
    malformed,
    unavailable,
)

_Handler = Callable[[Request], Awaitable[Response]]

_ASKED: dict[str, msgspec.json.Decoder[Any]] = {
    "/v1/recommend": msgspec.json.Decoder(RecommendMany),
    "/v1/score": msgspec.json.Decoder(Score),
    "/v1/similar": msgspec.json.Decoder(Similar),
    "/v1/explain": msgspec.json.Decoder(Explain),
}
"""The routes whose requests wait for the model, and what reads their bodies."""
_MOST_FOUND = 50

_encode = msgspec.json.Encoder().encode


class Service:
    """All that the routes need.

    Args:
        model: The thread of the model.
        follower: Loads newer models.
        guard: Who may ask.
    """

    def __init__(self, model: ModelThread, follower: Follower, guard: Guard) -> None:
        self._model, self._follower, self._guard = model, follower, guard
        self._searching = asyncio.Lock()

    def app(self) -> Starlette:
        """Return the application."""
        page = Page()
        routes = [
            *(self._route(path, self._asking(decoder), "POST") for path, decoder in _ASKED.items()),
            self._route("/v1/items", self.items),
            self._route("/v1/model", self.about),
            self._route("/health/live", self.live, is_open=True),
            self._route("/health/ready", self.ready, is_open=True),
            self._route("/metrics", self.metrics),
            self._route("/openapi.json", self.openapi),
            *(self._route(path, page.answer, is_open=True) for path in PLACES),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._life,
            exception_handlers={404: _no_route, 405: _wrong_method},
        )
        app.router.redirect_slashes = False
        return app

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self._model.start()
        self._follower.start()
        yield
        self._follower.close()
        await asyncio.to_thread(self._model.close)

    def _route(self, path: str, handler: _Handler, method: str = "GET", is_open: bool = False) -> Route:
        name = "page" if path in PLACES else path

        async def answer(request: Request) -> Response:
            start = monotonic()
            try:
                self._guard.check(request.headers, is_open)
                response = await handler(request)
            except WidenetError as error:
                response = _refused(error)
            except msgspec.ValidationError as error:
                response = _refused(malformed(error))
            except ClientDisconnect:
                response = Response(status_code=400)
            except Exception as error:
                tell("a request failed", error)
                response = _refused(RefusedError(500, "failed", "the service failed on this request"))
            self._model.measured.note(name, response.status_code, monotonic() - start)
            return response

        return Route(path, answer, methods=[method])

    def _asking(self, decoder: msgspec.json.Decoder[Any]) -> _Handler:
        """Return what answers requests for the model."""

        async def handler(request: Request) -> Response:
            asks, are_many = _asks_of(await self._guard.decoded(request, decoder))
            if len(asks) > self._model.max_rows:
                rule = f"must hold at most {self._model.max_rows:,}"
                raise RefusedError(422, "too_many", rule, option="requests", value=len(asks))
            answers = await self._model.answers(asks)
            for place, answer in enumerate(answers):
                if isinstance(answer, WidenetError):
                    return _refused(answer, f"requests[{place}]: " if len(asks) > 1 else "")
            return _json({"results": answers} if are_many else answers[0])

        return handler

    async def items(self, request: Request) -> Response:
        """The items whose id or title a text finds, and attributes of them."""
        wanted = msgspec.convert(dict(request.query_params), Search)
        names = [name for name in wanted.attributes.split(",") if name]
        engine = self._model.engine
        try:
            async with asyncio.timeout(self._model.deadline_seconds), self._searching:
                found = await asyncio.to_thread(engine.catalogue.search, wanted.search, _MOST_FOUND, names)
        except TimeoutError:
            raise too_late() from None
        return _json(Finding(engine.fingerprint, found))

    async def about(self, _: Request) -> Response:
        """Which model answers."""
        return _json(self._model.engine.about)

    async def live(self, _: Request) -> Response:
        """Whether the process answers."""
        return _json({"status": "live"})

    async def ready(self, _: Request) -> Response:
        """Whether the model answers."""
        if not self._model.is_open:
            raise unavailable("ending", "the service ends")
        if self._model.is_stuck:
            raise unavailable("stuck", "the model takes longer than the deadline")
        return _json({"status": "ready", "fingerprint": self._model.engine.fingerprint})

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text."""
        return Response(self._model.measured.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document."""
        return _json(_document(self._model.max_rows, self._guard.token is not None))


def _asks_of(post: Ask) -> tuple[Sequence[Ask], bool]:
    """Return the requests of a body, and whether it has them in a list; raises RefusedError."""
    if not isinstance(post, RecommendMany) or post.requests is None:
        return [post], False
    if post != RecommendMany(requests=post.requests):
        raise RefusedError(422, "contradiction", "goes without other fields", option="requests")
    return post.requests, True


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")


def _refused(error: WidenetError, place: str = "") -> Response:
    """Return the answer to a request that is refused; `place`: the beginning of the sentence."""
    status, code, headers = 422, "invalid", {}
    if isinstance(error, RefusedError):
        status, code, headers = error.http_status, error.code, error.headers
    refusal = Refusal(Mistake(code, place + worded(error), error.option))
    return Response(_encode(refusal), status, headers, "application/json")


async def _no_route(_: Request, __: Exception) -> Response:
    return _refused(RefusedError(404, "not_found", "there is no such route"))


async def _wrong_method(_: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return _refused(RefusedError(405, "wrong_method", "the route takes another method", headers))


_TYPES = (RecommendMany, Score, Similar, Explain, Search, Answer, Answers, Finding, About, Refusal)
_REFERENCE = "#/components/schemas/{name}"
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""A field of a docstring of Google's style: its name and sentences."""


def _document(most_rows: int, with_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        most_rows: Largest number of requests in a body.
        with_token: Whether requests need the token.
    """
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    _describe(components)
    search = components.pop("Search")
    parameters = [
        {"name": name, "in": "query", "required": name in search["required"], "schema": schema}
        for name, schema in search["properties"].items()
    ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "widenet",
            "version": "1",
            "description": f"A body holds at most {most_rows:,} requests.",
        },
        "security": [{"token": []}] if with_token else [],
        "paths": _paths(parameters),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what each route takes and answers."""
    answer, basket = _of(Answer), ["1", "2"]
    found = {"oneOf": [answer, _of(Answers)]}
    several = "Items for a basket, for a user, or for several of them."
    shares = "What each item of a history adds to the logit of an item, if the network is linear."
    paths: dict[str, Any] = {
        "/v1/recommend": _post(several, RecommendMany, {"items": basket, "k": 10}, found),
        "/v1/score": _post(
            "Scores of some items.", Score, {"items": basket, "candidates": ["3", "4"]}, answer
        ),
        "/v1/similar": _post("Items most similar to one.", Similar, {"item": "1"}, answer),
        "/v1/explain": _post(shares, Explain, {"items": basket, "item": "3"}, answer),
        "/v1/items": {"get": _operation("Items by id or title.", _of(Finding)) | {"parameters": parameters}},
        "/v1/model": {"get": _operation("The model that answers.", _of(About))},
    }
    for path, summary in (
        ("/health/live", "Whether the process answers."),
        ("/health/ready", "Whether the model answers."),
    ):
        paths[path] = {"get": _operation(summary, {"type": "object"}) | {"security": []}}
    return paths


def _describe(components: dict[str, Any]) -> None:
    """Describe messages and their fields by the docstrings of their classes."""
    for name, component in components.items():
        for kind in reversed(getattr(requests, name).__mro__[:-1]):
            summary, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
            component["description"] = " ".join(summary.split())
            for field, sentence in _ATTRIBUTE.findall(attributes):
                if field in component["properties"]:
                    component["properties"][field]["description"] = " ".join(sentence.split())


def _of(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _post(summary: str, body: type, example: Any, answer: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": _of(body), "example": example}}
    return {"post": _operation(summary, answer) | {"requestBody": {"required": True, "content": content}}}


def _operation(summary: str, answer: Any) -> dict[str, Any]:
    def content(schema: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    return {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content(answer)},
            "default": {"description": "Why there is no answer.", "content": content(_of(Refusal))},
        },
    }
