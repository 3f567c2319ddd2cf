"""The routes of the pages: read a request, look at the runs, write HTML."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import widenet.serve.page as shared
from widenet.data.manifest import Manifest
from widenet.errors import WidenetError
from widenet.pictures.html import Html
from widenet.report.subject import Subject
from widenet.serve.requests import RefusedError
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import DATA
from widenet.ui.answers import Session, always, html, refusal
from widenet.ui.known_runs import Known, KnownRuns
from widenet.ui.run_page import compare_page, run_page
from widenet.ui.runs_page import runs_page
from widenet.ui.training_routes import Handler, TrainingRoutes

_MOST_COMPARED = 12


class Pages:
    """The pages about the runs of a folder.

    Args:
        runs: The runs.
        session: Who may see them.
        trainings: Starts and stops trainings; None: the pages change nothing.
    """

    def __init__(self, runs: KnownRuns, session: Session, trainings: TrainingRoutes | None = None) -> None:
        self._runs, self._session, self._trainings = runs, session, trainings
        theirs, own = Path(shared.__file__).parent, Path(__file__).parent / "page"
        files = [theirs / "page.css", theirs / "icon.svg", *own.rglob("*.css"), *own.rglob("*.js")]
        self._files = {f"/page/{path.name}": path.read_bytes() for path in files}

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            self._route("/", self.table),
            self._route("/run", self.run),
            self._route("/compare", self.compare),
            self._route("/version", self.version),
            self._route("/session", self._session.begin, method="POST"),
            *(self._route(place, self.file, is_open=True) for place in self._files),
            *(self._route(*each) for each in (self._trainings.all() if self._trainings else ())),
        ]
        return Starlette(
            routes=routes,
            exception_handlers={
                404: always(404, "There is no such page."),
                405: always(405, "This page takes another method."),
            },
        )

    def _route(self, path: str, handler: Handler, method: str = "GET", is_open: bool = False) -> Route:
        async def answer(request: Request) -> Response:
            try:
                self._session.check(request, is_open)
                return await handler(request)
            except (WidenetError, OSError) as error:  # files may go away or be damaged at any time
                return refusal(error, self._runs.now.version)

        return Route(path, answer, methods=[method])

    async def table(self, request: Request) -> Response:
        """The table of runs."""
        query = request.query_params
        known = await self._look()
        can_start = self._trainings is not None
        return html(await asyncio.to_thread(runs_page, known, query.get("metric"), can_start))

    async def run(self, request: Request) -> Response:
        """The page of a run."""
        name = request.query_params.get("name", "")
        known, trainings = await self._look(), self._trainings

        def read() -> Html:
            begun = trainings.begun(name, known) if trainings and name not in known.runs else None
            if begun is not None:
                return begun
            (subject,) = _subjects(known, [name])
            subject = replace(subject, manifest=_manifest_of(subject.run))
            facts = known.runs[subject.name].listed
            return run_page(subject, facts, known.version, trainings.part(facts) if trainings else None)

        return html(await asyncio.to_thread(read))

    async def compare(self, request: Request) -> Response:
        """The comparison of several runs."""
        names = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(names) <= _MOST_COMPARED:
            rule = f"a comparison needs 2 to {_MOST_COMPARED} runs"
            raise RefusedError(422, "out_of_bounds", rule, value=len(names))
        known = await self._look()

        def read() -> Html:
            return compare_page(_subjects(known, names), known.version)

        return html(await asyncio.to_thread(read))

    async def _look(self) -> Known:
        return await asyncio.to_thread(self._runs.look)

    async def version(self, request: Request) -> Response:
        """The version of the runs, which open pages ask for again and again."""
        known = await self._look()
        headers = {**shared.HEADERS, "Cache-Control": "no-store"}
        return Response(str(known.version), headers=headers, media_type="text/plain")

    async def file(self, request: Request) -> Response:
        """A stylesheet, a script or the icon."""
        place = request.url.path
        kind = shared.KINDS[Path(place).suffix]
        return Response(self._files[place], headers=shared.HEADERS, media_type=kind)


def _subjects(known: Known, names: Sequence[str]) -> list[Subject]:
    """Open runs by their names; raises RefusedError, WidenetError, OSError."""
    for name in names:
        if name not in known.runs:
            why = known.problems.get(name)
            gone = f"the folder {known.folder.name} holds no run of this name"
            raise RefusedError(404 if why is None else 422, "no_run", why or gone)
    return [Subject(name, RunDirectory.open(known.runs[name].listed.path)) for name in names]


def _manifest_of(run: RunDirectory) -> Manifest | None:
    """Read the manifest of a run's dataset; None if it is gone or has other fields. No vocabulary is read."""
    inside = run.path / DATA
    try:
        manifest = Manifest.read(inside if inside.is_dir() else Path(run.machine["data"]))
    except (KeyError, WidenetError, OSError):
        return None
    widths = {name: field.width for name, field in manifest.fields.items()}
    is_same = all(widths.get(name) == record.width for name, record in run.fields.items())
    return manifest if is_same else None
