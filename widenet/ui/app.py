"""The routes of the pages: read a request, look at the runs, write HTML."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import widenet.serve.page.files as shared
from widenet.data.dataset import Dataset
from widenet.errors import WidenetError
from widenet.pictures.html import Html, tag
from widenet.report.subject import Subject
from widenet.serve.messages import RefusedError
from widenet.training.run_directory import RunDirectory
from widenet.ui.data_page import data_page, datasets_page
from widenet.ui.following import Following
from widenet.ui.known_runs import Known, KnownRuns
from widenet.ui.pages import page
from widenet.ui.run_page import compare_page, run_page
from widenet.ui.runs_page import runs_page
from widenet.ui.session import Session

_OWN = ("ui.css", "live.js", "pages.js", "reading.js", "search.js", "table.js", "token.js")
_MOST_COMPARED = 12
_T = TypeVar("_T")
_Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The pages about the runs of a folder.

    Args:
        runs: The runs.
        session: Who may see them.
        dataset: The dataset to show; None: that of each run.
    """

    def __init__(self, runs: KnownRuns, session: Session, dataset: Dataset | None) -> None:
        self._runs, self._session, self._dataset = runs, session, dataset
        self._reading = asyncio.Lock()  # of a dataset, which takes memory and time
        self.following = Following(runs)
        theirs, own = Path(shared.__file__).parent, Path(__file__).parent / "page"
        files = [theirs / "page.css", theirs / "icon.svg", *(own / name for name in _OWN)]
        self._files = {f"/page/{path.name}": path.read_bytes() for path in files}

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            self._route("/", self.table),
            self._route("/run", self.run),
            self._route("/compare", self.compare),
            self._route("/data", self.data),
            self._route("/events", self.events),
            self._route("/session", self._session.begin, method="POST"),
            *(self._route(place, self.file, is_open=True) for place in self._files),
        ]
        return Starlette(
            routes=routes,
            exception_handlers={
                404: _answer(404, "There is no such page."),
                405: _answer(405, "This page takes another method."),
            },
        )

    def _route(self, path: str, handler: _Handler, method: str = "GET", is_open: bool = False) -> Route:
        async def answer(request: Request) -> Response:
            try:
                self._session.check(request, is_open)
                return await handler(request)
            except RefusedError as refused:
                return _refusal(refused, self._runs.now.version)

        return Route(path, answer, methods=[method])

    async def table(self, request: Request) -> Response:
        """The table of runs."""
        query = request.query_params
        only = frozenset(query.getlist("only")) or None
        known = await self._look()
        return _html(await asyncio.to_thread(runs_page, known, query.get("metric"), only))

    async def run(self, request: Request) -> Response:
        """The page of a run."""
        names = request.query_params.getlist("name")
        known = await self._look()

        def read() -> Html:
            (subject,) = _subjects(known, names[:1])
            return run_page(subject, known.runs[subject.name].listed, known.version)

        return _html(await asyncio.to_thread(_readable, read))

    async def compare(self, request: Request) -> Response:
        """The comparison of several runs."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(names) <= _MOST_COMPARED:
            sentence = f"a comparison needs 2 to {_MOST_COMPARED} runs; got {len(names):,}."
            raise RefusedError(422, "out_of_bounds", sentence)
        known = await self._look()

        def read() -> Html:
            return compare_page(_subjects(known, names), known.version)

        return _html(await asyncio.to_thread(_readable, read))

    async def data(self, request: Request) -> Response:
        """The page of a dataset."""
        query = request.query_params
        known = await self._look()
        run = query.get("run")
        dataset = self._dataset
        if dataset is None and run is None:
            return _html(datasets_page(known))
        if dataset is None:
            dataset = await asyncio.to_thread(_readable, lambda: _dataset(known, run or ""))
        search, user = query.get("search", ""), query.get("user")
        async with self._reading:
            return _html(await asyncio.to_thread(_readable, lambda: data_page(dataset, run, search, user)))

    async def _look(self) -> Known:
        return await asyncio.to_thread(self._runs.look, not self.following.is_looking)

    async def events(self, request: Request) -> Response:
        """Which runs change, as server-sent events."""
        given = request.headers.get("last-event-id") or request.query_params.get("since", "")
        since = int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0
        headers = {**shared.HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self.following.events(since), headers=headers, media_type="text/event-stream"
        )

    async def file(self, request: Request) -> Response:
        """A stylesheet, a script or the icon."""
        place = request.url.path
        kind = shared.KINDS[Path(place).suffix]
        return Response(self._files[place], headers=shared.HEADERS, media_type=kind)


def _subjects(known: Known, names: Sequence[str]) -> list[Subject]:
    """Open runs by their names; raises RefusedError, WidenetError, OSError."""
    for name in names or [""]:
        if name not in known.runs:
            why = known.problems.get(name)
            gone = f"{known.folder.name} holds no run of this name. It may have been deleted or renamed."
            raise RefusedError(404 if why is None else 422, "no_run", why or gone)
    return [Subject(name, RunDirectory.open(known.runs[name].listed.path)) for name in names]


def _dataset(known: Known, name: str) -> Dataset:
    """Open the dataset of a run by its name; raises RefusedError, WidenetError, OSError."""
    (subject,) = _subjects(known, [name])
    dataset = subject.run.dataset()
    if dataset is None:
        raise RefusedError(
            404,
            "no_data",
            f"the dataset of {name} is not at hand, or has changed. Start widenet ui with this dataset.",
        )
    return dataset


def _readable(read: Callable[[], _T]) -> _T:
    """Return what reading runs gives; raises RefusedError for files that went away or are damaged."""
    try:
        return read()
    except (WidenetError, OSError) as error:
        raise RefusedError(422, "unreadable", str(error)) from None


def _html(html: Html, status: int = 200) -> Response:
    body = html.encode("utf-8", errors="xmlcharrefreplace")
    return Response(body, status, {**shared.HEADERS, "Cache-Control": "no-store"}, "text/html; charset=utf-8")


def _refusal(refused: RefusedError, version: int) -> Response:
    """The page that says why there is no other; for a missing token, it asks for the token."""
    sentence = refused.mistake.message
    sentence = f"{sentence[:1].upper()}{sentence[1:]}"
    if refused.status != 401:
        content = [tag("p", sentence, class_="card")]
        return _html(page("Not here", "", content, version=version), refused.status)
    field = tag("input", id="token", type="password", autocomplete="off", required=True)
    form = tag(
        "form",
        tag("label", "Token of these pages", for_="token"),
        tag("div", field, tag("button", "Use"), class_="line"),
        tag("p", "Your browser forgets it when you close it.", class_="note"),
        id="key",
        class_="card",
    )
    return _html(page("Who may look", sentence, [form], scripts=["token.js"]), 401)


def _answer(status: int, sentence: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        del request, error
        return _html(page("Not here", "", [tag("p", sentence, class_="card")]), status)

    return answer
