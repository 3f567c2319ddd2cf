"""The routes: read a request, ask the model's thread, write the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from widenet.serve.asking import ROUTES, Asking, Reply, decoded, encode
from widenet.serve.batches import ModelThread
from widenet.serve.following import Follower
from widenet.serve.guard import Guard
from widenet.serve.malformed import unknown_parameter
from widenet.serve.messages import LONGEST_SEARCH, Bounds, Load, RefusedError
from widenet.serve.openapi import document
from widenet.serve.page.files import PLACES, Page
from widenet.serve.remote import RemoteModel
from widenet.serve.work import WorkThread

_Handler = Callable[[Request], Awaitable[Response]]

_MOST_FOUND, _MOST_SEARCHES = 50, 16
_PARAMETERS = "search", "attributes"
_LOAD = msgspec.json.Decoder(Load)
_READ = ("GET", "HEAD")


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
        posts = {route: self._through_model(route) for route in ROUTES}
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

    @property
    def asking(self) -> Asking:
        """What asks the model."""
        return Asking(self.model, self.bounds)

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

        async def answer(request: Request) -> Response:
            if request.method not in methods:
                allowed = {"Allow": ", ".join(methods)}
                sentence = f"the route takes {' or '.join(methods)}."
                return _refused(RefusedError(405, "wrong_method", sentence, allowed))
            start = monotonic()
            try:
                self.guard.check(request.headers, is_open)
                response = await handler(request)
            except RefusedError as refused:
                response = _refused(refused)
            except ClientDisconnect:
                response = Response(status_code=400)
            self.model.measured.note(path, response.status_code, monotonic() - start)
            return response

        return answer

    def _through_model(self, route: str) -> _Handler:
        """Return what answers those requests for a route that their connection does not answer by itself."""

        async def handler(request: Request) -> Response:
            body = await self.guard.body(request)
            future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self.asking.ask(route, body, lambda reply: None if future.done() else future.set_result(reply))
            return _response(await future)

        return handler

    async def items(self, request: Request) -> Response:
        """The items whose id or title a text finds, and attributes of them."""
        for name in request.query_params:
            if name not in _PARAMETERS:
                raise RefusedError(422, "malformed", unknown_parameter(name, _PARAMETERS))
        text = request.query_params.get("search", "")
        if not 1 <= len(text) <= LONGEST_SEARCH:
            raise RefusedError(
                422,
                "out_of_bounds",
                f"search must have 1 to {LONGEST_SEARCH} characters; got {len(text):,}.",
            )
        remote = self._remote()
        seconds = self.model.rhythm.deadline_seconds
        names = [name for name in request.query_params.get("attributes", "").split(",") if name]
        finding = await self.searches.do(lambda: remote.search(text, _MOST_FOUND, names), seconds)
        return _response(Reply(200, finding))

    async def about(self, _: Request) -> Response:
        """Which model answers."""
        return _json(self._remote().about)

    def _remote(self) -> RemoteModel:
        remote = self.model.engine
        assert isinstance(remote, RemoteModel)
        return remote

    async def load(self, request: Request) -> Response:
        """Serve another run of the folder."""
        name = decoded(_LOAD, await self.guard.body(request)).run
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
        if self.model.is_stuck:
            raise RefusedError(
                503, "stuck", "the model takes longer than the deadline.", {"Retry-After": "1"}
            )
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


def _json(value: Any) -> Response:
    return _response(Reply(200, encode(value)))


def _refused(refused: RefusedError) -> Response:
    return _response(Reply.refusing(refused))


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, "application/json")


async def _no_route(_: Request) -> Response:
    sentence = "there is no such route. GET /openapi.json lists the routes."
    return _refused(RefusedError(404, "not_found", sentence))
