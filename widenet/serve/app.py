"""The routes: read a request, ask the model's thread, write the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from widenet.serve.batches import ModelThread, busy
from widenet.serve.connections import TurningAway
from widenet.serve.engine import Engine
from widenet.serve.following import Follower
from widenet.serve.guard import Guard
from widenet.serve.malformed import sentence_of
from widenet.serve.messages import (
    LONGEST_SEARCH,
    Answer,
    Answers,
    Ask,
    Bounds,
    Explain,
    Finding,
    Load,
    RecommendMany,
    Refusal,
    RefusedError,
    Score,
    Similar,
)
from widenet.serve.openapi import document
from widenet.serve.page.files import PLACES, Page
from widenet.serve.work import WorkThread

_T = TypeVar("_T")
_Handler = Callable[[Request], Awaitable[Response]]

_MOST_FOUND, _MOST_SEARCHES = 50, 16
_RECOMMEND, _SCORE = msgspec.json.Decoder(RecommendMany), msgspec.json.Decoder(Score)
_EXPLAIN = msgspec.json.Decoder(Explain)
_SIMILAR, _LOAD = msgspec.json.Decoder(Similar), msgspec.json.Decoder(Load)
_READ = ("GET", "HEAD")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Service:
    """All that the routes need.

    Attributes:
        model: The thread of the model.
        follower: Loads newer models.
        guard: Who may ask.
        bounds: What a request may ask for.
        runs: Folder of runs that may be loaded by name; None: no such route.
        searches: The thread that reads titles.
        loads: The thread that loads models by name, one at a time.
    """

    model: ModelThread
    follower: Follower
    guard: Guard
    bounds: Bounds
    runs: Path | None
    searches: WorkThread = field(default_factory=lambda: WorkThread("searches", _MOST_SEARCHES))
    loads: WorkThread = field(default_factory=lambda: WorkThread("loads", 1))

    def app(self) -> ASGIApp:
        """Return the application."""
        posts = self._asks()
        if self.guard.token is not None and self.runs is not None:
            posts["/v1/admin/load"] = self.load
        gets = {
            "/v1/items": self.items,
            "/v1/model": self.about,
            "/metrics": self.metrics,
            "/openapi.json": self.openapi,
        }
        routes = {path: self._route(path, handler, ("POST",)) for path, handler in posts.items()}
        routes |= {path: self._route(path, handler, _READ) for path, handler in gets.items()}
        opened: dict[str, _Handler] = {"/health/live": self.live, "/health/ready": self.ready}
        routes |= {path: self._route(path, handler, _READ, is_open=True) for path, handler in opened.items()}
        page = self._route("page", Page().answer, _READ, is_open=True)
        routes |= dict.fromkeys(PLACES, page)
        life = Router(lifespan=self._life)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await life(scope, receive, send)
            else:
                response = await routes.get(scope["path"], _no_route)(Request(scope, receive))
                await response(scope, receive, send)

        return app

    def turning_away(self) -> TurningAway:
        """Return which requests get 503 unread while too many rows wait."""
        numbers = {
            path.encode(): self.model.measured.requests.labels(path, "503").inc for path in self._asks()
        }
        refusal = busy()
        return TurningAway(
            numbers, lambda: self.model.is_full, refusal.headers, _encode(Refusal(refusal.mistake))
        )

    def _asks(self) -> dict[str, _Handler]:
        """Return the routes whose requests wait for the model."""
        return {
            "/v1/recommend": self.recommend,
            "/v1/score": self.score,
            "/v1/similar": self.similar,
            "/v1/explain": self.explain,
        }

    @asynccontextmanager
    async def _life(self, _: Any) -> AsyncIterator[None]:
        self.model.start()
        self.follower.start()
        self.searches.start()
        self.loads.start()
        yield
        self.searches.end()
        self.follower.close()
        await asyncio.to_thread(self.model.close)

    def _route(
        self, path: str, handler: _Handler, methods: tuple[str, ...], is_open: bool = False
    ) -> _Handler:
        """Return what answers requests for a path: the handler's answer, or why there is none."""
        measured = self.model.measured
        seconds = measured.seconds.labels(path)

        async def answer(request: Request) -> Response:
            if request.method not in methods:
                allowed = {"Allow": ", ".join(methods)}
                return _refused(RefusedError(405, "wrong_method", "the route takes another method.", allowed))
            start = monotonic()
            try:
                self.guard.check(request, is_open)
                response = await handler(request)
            except RefusedError as refused:
                response = _refused(refused)
            except ClientDisconnect:
                response = Response(status_code=400)
            measured.requests.labels(path, str(response.status_code)).inc()
            seconds.observe(monotonic() - start)
            return response

        return answer

    async def recommend(self, request: Request) -> Response:
        """One request, or several under `requests`."""
        post = _decoded(_RECOMMEND, await self.guard.body(request))
        if post.requests is None:
            return _json((await self._answers([post]))[0])
        if post != RecommendMany(requests=post.requests):
            raise RefusedError(422, "contradiction", "requests goes without other fields.")
        return _json(Answers(await self._answers(post.requests)))

    async def score(self, request: Request) -> Response:
        """The scores of some items for one person."""
        ask = _decoded(_SCORE, await self.guard.body(request))
        return _json((await self._answers([ask]))[0])

    async def similar(self, request: Request) -> Response:
        """The items most similar to one."""
        ask = _decoded(_SIMILAR, await self.guard.body(request))
        return _json((await self._answers([ask]))[0])

    async def explain(self, request: Request) -> Response:
        """What each item of a history adds to the logit of an item."""
        ask = _decoded(_EXPLAIN, await self.guard.body(request))
        return _json((await self._answers([ask]))[0])

    async def _answers(self, asks: Sequence[Ask]) -> list[Answer]:
        """Return the answers of the model's thread; raises RefusedError for the first that has none."""
        self.bounds.check(asks)
        futures = self.model.offer(asks)
        try:
            async with asyncio.timeout(self.model.rhythm.deadline_seconds):
                results = [await future for future in futures]
        except TimeoutError:
            raise RefusedError(504, "too_late", "the model had no time before the deadline.") from None
        answers = []
        for place, result in enumerate(results):
            if isinstance(result, RefusedError):
                where = f"requests[{place}]: " if len(asks) > 1 else ""
                mistake = result.mistake
                raise RefusedError(result.status, mistake.code, where + mistake.message, result.headers)
            answers.append(result)
        return answers

    async def items(self, request: Request) -> Response:
        """The items whose id or title a text finds, and attributes of them."""
        text = request.query_params.get("search", "")
        if not 1 <= len(text) <= LONGEST_SEARCH:
            raise RefusedError(
                422,
                "out_of_bounds",
                f"search must have 1 to {LONGEST_SEARCH} characters; got {len(text):,}.",
            )
        engine = self._engine()
        seconds = self.model.rhythm.deadline_seconds
        names = [name for name in request.query_params.get("attributes", "").split(",") if name]
        found = await self.searches.do(lambda: engine.search(text, _MOST_FOUND, names), seconds)
        return _json(Finding(engine.fingerprint, found))

    async def about(self, _: Request) -> Response:
        """Which model answers."""
        return _json(self._engine().about)

    def _engine(self) -> Engine:
        engine = self.model.engine
        assert isinstance(engine, Engine)
        return engine

    async def load(self, request: Request) -> Response:
        """Serve another run of the folder."""
        name = _decoded(_LOAD, await self.guard.body(request)).run
        runs = self.runs
        assert runs is not None
        return _json({"fingerprint": await self.loads.do(lambda: self.follower.load(run_below(runs, name)))})

    async def live(self, _: Request) -> Response:
        """Whether the process answers."""
        return _json({"status": "live"})

    async def ready(self, _: Request) -> Response:
        """Whether the model answers."""
        if not self.model.is_open:
            raise RefusedError(503, "ending", "the service ends.", {"Retry-After": "1"})
        return _json({"status": "ready", "fingerprint": self.model.engine.fingerprint})

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text."""
        return Response(self.model.measured.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document."""
        return _json(document(self.bounds, self.runs is not None, self.guard.token is not None))


def run_below(folder: Path, name: str) -> Path:
    """Return a run of a folder by its name.

    Raises:
        RefusedError: There is no such run directly below the folder.
    """
    known = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    if name not in known or not (folder / name / "network.json").is_file():
        raise RefusedError(404, "no_run", "there is no run of this name.")
    return folder / name


def _decoded(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(422, "malformed", sentence_of(error, decoder.type)) from None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers, "application/json")


def _refused(refused: RefusedError) -> Response:
    return _json(Refusal(refused.mistake), refused.status, refused.headers)


async def _no_route(_: Request) -> Response:
    return _refused(RefusedError(404, "not_found", "there is no such route."))
