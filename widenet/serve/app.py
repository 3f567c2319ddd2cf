"""The routes: read a request, ask the model's thread, write the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from widenet.errors import WidenetError, nearest, worded
from widenet.serve.batches import ModelThread, tell, too_late
from widenet.serve.following import Follower
from widenet.serve.guard import Guard
from widenet.serve.openapi import document
from widenet.serve.page import PLACES, Page
from widenet.serve.requests import (
    LONGEST_SEARCH,
    Ask,
    Bounds,
    Explain,
    Finding,
    Load,
    Mistake,
    RecommendMany,
    Refusal,
    RefusedError,
    Score,
    Similar,
    unavailable,
)

_T = TypeVar("_T")
_Handler = Callable[[Request], Awaitable[Response]]

_ASKED: dict[str, msgspec.json.Decoder[Any]] = {
    "/v1/recommend": msgspec.json.Decoder(RecommendMany),
    "/v1/score": msgspec.json.Decoder(Score),
    "/v1/similar": msgspec.json.Decoder(Similar),
    "/v1/explain": msgspec.json.Decoder(Explain),
}
"""The routes whose requests wait for the model, and what reads their bodies."""
_LOAD = msgspec.json.Decoder(Load)
_MOST_FOUND, _MOST_SEARCHES = 50, 16
_PARAMETERS = "search", "attributes"

_encode = msgspec.json.Encoder().encode


class Service:
    """All that the routes need.

    Args:
        model: The thread of the model.
        follower: Loads newer models.
        guard: Who may ask.
        bounds: What a request may ask for.
        runs: Folder of runs that may be loaded by name; None: no such route.
    """

    def __init__(
        self, model: ModelThread, follower: Follower, guard: Guard, bounds: Bounds, runs: Path | None
    ) -> None:
        self._model, self._follower, self._guard, self._bounds = model, follower, guard, bounds
        self._runs = runs if guard.token is not None else None
        self._searches, self._searching = 0, asyncio.Lock()
        self._loading: asyncio.Task[str] | None = None
        self._works: set[Future[Any]] = set()

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
            *([] if self._runs is None else [self._route("/v1/admin/load", self.load, "POST")]),
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

    def end_loads(self) -> None:
        """Refuse a load that is under way; the event loop calls it."""
        if self._loading is not None:
            self._loading.cancel()

    def is_working(self) -> bool:
        """Return whether a thread still works, after the end."""
        return bool(self._works) or self._follower.is_alive() or self._model.is_alive()

    def _route(self, path: str, handler: _Handler, method: str = "GET", is_open: bool = False) -> Route:
        name = "page" if path in PLACES else path

        async def answer(request: Request) -> Response:
            start = monotonic()
            try:
                self._guard.check(request.headers, is_open)
                response = await handler(request)
            except WidenetError as error:
                response = _refused(error)
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
            self._bounds.check(asks)
            answers = await self._model.answers(asks)
            for place, answer in enumerate(answers):
                if isinstance(answer, WidenetError):
                    return _refused(answer, f"requests[{place}]: " if len(asks) > 1 else "")
            return _json({"results": answers} if are_many else answers[0])

        return handler

    async def items(self, request: Request) -> Response:
        """The items whose id or title a text finds, and attributes of them."""
        for name in request.query_params:
            if name not in _PARAMETERS:
                raise RefusedError(
                    422,
                    "malformed",
                    f"is no parameter of the route{nearest(name, _PARAMETERS)}",
                    option=name[:100],
                )
        text = request.query_params.get("search", "")
        if not 1 <= len(text) <= LONGEST_SEARCH:
            rule = f"must have 1 to {LONGEST_SEARCH} characters"
            raise RefusedError(422, "out_of_bounds", rule, option="search", value=len(text))
        names = [name for name in request.query_params.get("attributes", "").split(",") if name]
        if self._searches >= _MOST_SEARCHES:
            raise unavailable("busy", "too many searches wait")
        engine = self._model.engine
        self._searches += 1
        try:
            async with asyncio.timeout(self._model.rhythm.deadline_seconds), self._searching:
                found = await self._in_thread(lambda: engine.catalogue.search(text, _MOST_FOUND, names))
        except TimeoutError:
            raise too_late() from None
        finally:
            self._searches -= 1
        return _json(Finding(engine.fingerprint, found))

    async def load(self, request: Request) -> Response:
        """Serve another run of the folder."""
        assert self._runs is not None
        run = run_below(self._runs, (await self._guard.decoded(request, _LOAD)).run)
        if self._loading is not None:
            raise unavailable("busy", "another load is under way")
        self._loading = asyncio.ensure_future(self._in_thread(lambda: self._follower.load(run)))
        try:
            return _json({"fingerprint": await self._loading})
        except asyncio.CancelledError:
            raise unavailable("ending", "the service ends") from None
        finally:
            self._loading = None

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Return what work gives in a thread of its own, for which the end of the service does not wait."""
        future: Future[_T] = Future()

        def run() -> None:
            future.set_running_or_notify_cancel()
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._works.add(future)
        future.add_done_callback(self._works.discard)
        Thread(target=run, daemon=True).start()
        return await asyncio.wrap_future(future)

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
        return _json(document(self._bounds, self._runs is not None, self._guard.token is not None))


def run_below(folder: Path, name: str) -> Path:
    """Return a run of a folder by its name.

    Raises:
        RefusedError: There is no such run directly below the folder.
    """
    known = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    if name not in known or not (folder / name / "network.json").is_file():
        raise RefusedError(404, "no_run", "there is no run of this name")
    return folder / name


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
