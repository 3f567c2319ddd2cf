"""The routes that start, stop and resume trainings; they exist where `widenet ui` allows trainings."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import widenet.serve.page as shared
from widenet.data.dataset import Dataset
from widenet.data.manifest import FILE_NAME
from widenet.pictures.html import Html, tag
from widenet.report.listing import ListedRun
from widenet.serve.guard import Guard
from widenet.serve.messages import RefusedError
from widenet.training.environment import recorded_processes
from widenet.training.existing_run import is_locked
from widenet.training.run_directory import RunDirectory
from widenet.ui.answers import html, readable
from widenet.ui.draft import KINDS, Checked, Draft, check, dataset_of, datasets, default_texts
from widenet.ui.known_runs import Known, KnownRuns
from widenet.ui.pages import page
from widenet.ui.start_page import begun_page, plan_page, start_page, training_part
from widenet.ui.trainings import Trainings

MOST_BYTES = 2**20
"""Largest size of a request."""

_MOST_SECONDS, _SECONDS_A_LOOK = 300.0, 0.5
"""Longest measurement of a training's time, and how often it is asked whether somebody still waits for it."""

_MOST_TEXT = 2**19
"""Longest document of a run, in characters, that the page shows to be edited."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class TrainingRoutes:
    """Pages and actions about trainings.

    Attributes:
        runs: The runs of the folder.
        trainings: Starts the trainings.
        guard: Reads bodies.
        data: A dataset to offer beside those of the runs; None: none.
        datasets: A folder of further datasets; None: none.
        measure_command: Gives the words of the command that times a training, from its documents and dataset.
    """

    runs: KnownRuns
    trainings: Trainings
    guard: Guard
    data: Path | None
    datasets: Path | None
    measure_command: Callable[[Sequence[Path], Path], Sequence[str]]
    _measuring: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    def all(self) -> list[tuple[str, Handler, str]]:
        """Return path, handler and method of each route."""
        return [
            ("/start", self.form, "GET"),
            ("/schema", self.schema, "GET"),
            ("/plan", self.plan, "POST"),
            ("/measure", self.measure, "POST"),
            ("/start", self.start, "POST"),
            ("/stop", self.stop, "POST"),
            ("/resume", self.resume, "POST"),
        ]

    def begun(self, name: str, known: Known) -> Html | None:
        """Return the page of a training that has not made its run yet; None if there is no such training."""
        if self.trainings.documents(name) is None:
            return None
        return begun_page(name, self.trainings, known.version)

    def part(self, run: ListedRun) -> Html:
        """Return what the page of a run says of its training."""
        return training_part(run, self.trainings)

    async def form(self, request: Request) -> Response:
        """The page that starts a training."""
        query = request.query_params
        data, like = query.get("data"), query.get("like", "")
        return html(await asyncio.to_thread(readable, lambda: self._form(data, like)))

    def _form(self, data: str | None, like: str) -> Html:
        known = self.runs.look()
        choices, texts = self._choices(known), None
        if like:
            texts = self._texts_of(known, like)
            own = dataset_of(known.runs[like].documents) if like in known.runs else None
            data = data or (None if own is None else str(own))
        data = data if data in choices else next(iter(choices), None)
        if data is None:
            return start_page(choices, None, "", known, {}, "")
        dataset = _opened(data)
        fields = " ".join(dataset.fields)
        return start_page(choices, data, like, known, texts or default_texts(dataset), fields)

    def _texts_of(self, known: Known, name: str) -> dict[str, str]:
        """Return the documents of a run, or of a training that never made one."""
        folder = known.runs[name].listed.path if name in known.runs else self.trainings.documents(name)
        if folder is None:
            raise RefusedError(404, "no_run", f"the folder {known.folder.name} holds no run of this name.")
        texts = {}
        for document in KINDS:
            with (folder / f"{document}.json").open(encoding="utf-8", errors="replace") as file:
                texts[document] = file.read(_MOST_TEXT)
        return texts

    def _choices(self, known: Known) -> dict[str, str]:
        return datasets(known, self.data, self.datasets)

    async def schema(self, request: Request) -> Response:
        """The JSON Schema of a document."""
        kind = KINDS.get(request.query_params.get("document", ""))
        if kind is None:
            raise RefusedError(404, "not_found", f"document must be one of {', '.join(KINDS)}.")
        return JSONResponse(kind.model_json_schema(), headers=dict(shared.HEADERS))

    async def plan(self, request: Request) -> Response:
        """The mistakes of a draft, or its plan."""
        _, checked = await self._checked(request)
        return html(plan_page(checked))

    async def measure(self, request: Request) -> Response:
        """How long a training takes: a few steps of it, timed by `widenet plan` in a process of its own."""
        draft, checked = await self._checked(request)
        _check_right(checked)
        if self._measuring.locked():
            raise RefusedError(409, "measuring", "another training is being measured. Wait for its end.")
        async with self._measuring:
            with TemporaryDirectory() as folder:
                files = []
                for name, text in draft.texts.items():
                    files.append(Path(folder) / f"{name}.json")
                    await asyncio.to_thread(files[-1].write_text, text, encoding="utf-8")
                said = await output_of(self.measure_command(files, Path(draft.data)), request)
        return html(page("Measured", "", [tag("pre", said, id="measured")]))

    async def start(self, request: Request) -> Response:
        """Start a training."""
        draft, checked = await self._checked(request)
        _check_right(checked)
        texts = {f"{name}.json": text for name, text in draft.texts.items()}

        def begin() -> None:
            busy = self._busy(self.runs.look())
            self.trainings.start(draft.name, Path(draft.data), texts, draft.processes, busy)

        await asyncio.to_thread(readable, begin)
        return html(page(draft.name, "", [tag("p", "It begins.")]))

    async def stop(self, request: Request) -> Response:
        """Ask a training to save a checkpoint and end."""
        run = await self._run(request)
        await asyncio.to_thread(readable, lambda: self.trainings.stop(run.path))
        return html(page(run.name, "", [tag("p", "It ends.")]))

    async def resume(self, request: Request) -> Response:
        """Resume a training that was stopped."""
        run = await self._run(request)

        def resume() -> None:
            known = self.runs.look()
            if is_locked(run.path) or run.state == "finished":
                raise RefusedError(409, "not_stopped", f"{run.name} is being trained, or has finished.")
            directory = RunDirectory.open(run.path)
            dataset = directory.dataset()
            if dataset is None:
                raise RefusedError(
                    409, "no_data", f"the dataset of {run.name} is not at hand, or has changed."
                )
            processes = recorded_processes(directory.machine)
            self.trainings.resume(run.path, dataset.path.resolve(), processes, self._busy(known))

        await asyncio.to_thread(readable, resume)
        return html(page(run.name, "", [tag("p", "It goes on.")]))

    def _busy(self, known: Known) -> str | None:
        """Return a run that is being trained, by whomever; None without one."""
        return next((name for name, run in known.runs.items() if is_locked(run.listed.path)), None)

    async def _run(self, request: Request) -> ListedRun:
        """Return the run that a request names."""
        name = (await self._values(request)).get("run")
        known = await asyncio.to_thread(self.runs.look)
        if not isinstance(name, str) or name not in known.runs:
            raise RefusedError(404, "no_run", f"the folder {known.folder.name} holds no run of this name.")
        return known.runs[name].listed

    async def _checked(self, request: Request) -> tuple[Draft, Checked]:
        draft = Draft.of(await self._values(request))
        return draft, await asyncio.to_thread(readable, lambda: self._check(draft))

    def _check(self, draft: Draft) -> Checked:
        if draft.data not in self._choices(self.runs.now):
            raise RefusedError(422, "no_data", "the dataset must be one that the page offers.")
        return check(draft, _opened(draft.data))

    async def _values(self, request: Request) -> Mapping[str, Any]:
        try:
            values = json.loads(await self.guard.body(request))
        except (ValueError, RecursionError):
            raise RefusedError(422, "malformed", "the body is no valid JSON.") from None
        if not isinstance(values, dict):
            raise RefusedError(422, "malformed", "the body must be an object.")
        return values


def _opened(path: str) -> Dataset:
    """Open a dataset, or return it again while its manifest stays the same; raises WidenetError, OSError."""
    return _dataset(path, (Path(path) / FILE_NAME).stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _dataset(path: str, written: int) -> Dataset:
    del written
    return Dataset.open(path)


def _check_right(checked: Checked) -> None:
    """Raise RefusedError for a draft with a mistake."""
    for sentence in checked.mistakes.values():
        raise RefusedError(422, "wrong_document", sentence)


async def output_of(words: Sequence[str], request: Request) -> str:
    """Return what a command prints; it ends with the request that waits for it."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    reading = asyncio.ensure_future(process.communicate())
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            while not (await asyncio.wait([reading], timeout=_SECONDS_A_LOOK))[0]:
                if await request.is_disconnected():
                    return ""
    except TimeoutError:
        return f"It takes longer than {_MOST_SECONDS:g} seconds to measure."
    finally:
        with suppress(ProcessLookupError):  # also what the process has left behind when it ended
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = await reading
    return output.decode("utf-8", errors="replace")
