"""The pages that start and stop trainings; they exist where `widenet ui` allows trainings."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from widenet.data.dataset import Dataset
from widenet.data.manifest import FILE_NAME
from widenet.errors import FitError
from widenet.pictures.html import Html, tag
from widenet.report.listing import ListedRun
from widenet.report.sections import note
from widenet.runs.documents import documents
from widenet.serve.requests import Guard, RefusedError
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores.uri import is_uri
from widenet.training.check import check_training
from widenet.training.run_path import is_locked
from widenet.ui.answers import html
from widenet.ui.known_runs import Known, KnownRuns
from widenet.ui.pages import live, page
from widenet.ui.trainings import Trainings

MOST_BYTES = 2**20
"""Largest size of a request."""

_KINDS: Mapping[str, type[Document]] = {"network": NetworkSpec, "training": TrainingSpec}
_MOST_DATASETS = 1000

Handler = Callable[[Request], Awaitable[Response]]


class Draft(msgspec.Struct, forbid_unknown_fields=True):
    """A training to start.

    Attributes:
        name: Name of the run.
        data: Path of the dataset, as the page offers it.
        network: JSON text of the network document.
        training: JSON text of the training document.
    """

    name: str
    data: str
    network: str
    training: str


class Stop(msgspec.Struct, forbid_unknown_fields=True):
    """A training to stop, by the name of its run."""

    run: str


_DRAFT, _STOP = msgspec.json.Decoder(Draft), msgspec.json.Decoder(Stop)


@dataclass(frozen=True)
class TrainingRoutes:
    """Pages and actions about trainings.

    Attributes:
        runs: The runs of the folder.
        trainings: Starts the trainings.
        guard: Reads bodies.
        datasets: A folder of datasets beside those of the runs, at most two folders deep; None: none.
    """

    runs: KnownRuns
    trainings: Trainings
    guard: Guard
    datasets: Path | None

    def all(self) -> list[tuple[str, Handler, str]]:
        """Return path, handler and method of each route."""
        return [("/start", self.form, "GET"), ("/start", self.start, "POST"), ("/stop", self.stop, "POST")]

    async def form(self, request: Request) -> Response:
        """The page that starts a training."""
        return html(await asyncio.to_thread(self._form, request.query_params.get("data")))

    def _form(self, data: str | None) -> Html:
        known = self.runs.look()
        choices = self.choices(known)
        data = data if data in choices else next(iter(choices), None)
        if data is None:
            text = f"No run in {known.folder.name} names a dataset that is still at hand."
            return page("Start a training", "", [tag("p", text, class_="card")])
        return _start_page(choices, data, default_texts(Dataset.open(data)))

    def choices(self, known: Known) -> dict[str, str]:
        """Return the datasets that a training may take: names by path."""
        paths = [path for run in known.runs.values() if (path := _dataset_of(run.documents)) is not None]
        if self.datasets is not None:
            for depth in ("*", "*/*"):
                found = self.datasets.glob(f"{depth}/{FILE_NAME}")
                paths += sorted(path.parent.resolve() for path in found)
        whole = [path for path in dict.fromkeys(paths) if (path / FILE_NAME).is_file()]
        return {str(path): path.name for path in whole[:_MOST_DATASETS]}

    async def start(self, request: Request) -> Response:
        """Start a training."""
        draft = await self.guard.decoded(request, _DRAFT)

        def begin() -> None:
            known = self.runs.look()
            if draft.data not in self.choices(known):
                raise RefusedError(422, "no_data", "must be a dataset that the page offers", option="data")
            texts = {"network": draft.network, "training": draft.training}
            network, training = (kind.parse(texts[name], kind.usual_name) for name, kind in _KINDS.items())
            assert isinstance(network, NetworkSpec)
            assert isinstance(training, TrainingSpec)
            dataset = Dataset.open(draft.data)
            check_training(network, training, dataset.path, dataset.manifest)
            busy = next((name for name, run in known.runs.items() if is_locked(run.listed.path)), None)
            files = {f"{name}.json": text for name, text in texts.items()}
            self.trainings.start(draft.name, Path(draft.data), files, busy)

        await asyncio.to_thread(begin)
        return html(page(draft.name, "", [tag("p", "It begins.")]))

    async def stop(self, request: Request) -> Response:
        """Ask a training to save a checkpoint and end."""
        name = (await self.guard.decoded(request, _STOP)).run
        known = await asyncio.to_thread(self.runs.look)
        if name not in known.runs:
            raise RefusedError(404, "no_run", f"the folder {known.folder.name} holds no run of this name")
        await asyncio.to_thread(self.trainings.stop, known.runs[name].listed.path)
        return html(page(name, "", [tag("p", "It ends.")]))

    def begun(self, name: str, known: Known) -> Html | None:
        """Return the page of a training that has not made its run yet; None if there is no such training."""
        if not self.trainings.has_started(name):
            return None
        path = self.trainings.path(name)
        is_alive = self.trainings.is_alive(path)
        said = "begins" if is_alive else "ended before its run began"
        return page(
            name,
            live("state", "p", f"The training {said}.", role="status"),
            [
                live(
                    "training", "div", _pending(is_alive), _output(self.trainings.output(path)), class_="card"
                )
            ],
            version=known.version,
            scripts=["training.js"],
        )

    def part(self, run: ListedRun) -> Html:
        """Return what the page of a run says of its training: a button to stop it, and what it prints."""
        path, is_alive = run.path, self.trainings.is_alive(run.path)
        is_stopping, is_training = self.trainings.is_stopping(path), run.state == "training"
        said: Html | str = ""
        if is_stopping:
            said = tag("p", "It saves a checkpoint and ends.")
        elif is_alive:
            words = {"type": "button", "class_": "main", "data_action": "stop", "data_run": run.name}
            said = tag("button", "Stop with a checkpoint", **words)
        elif is_training:
            said = note("These pages have not started this training. Stop it where it was started.")
        pending = _pending(is_stopping or (is_alive and not is_training))
        return live("training", "div", said, pending, _output(self.trainings.output(path)), class_="card")


def default_texts(dataset: Dataset) -> dict[str, str]:
    """Return the default documents of a dataset, without the values that every document has by default."""
    try:
        both = documents(None, None, dataset)
    except FitError:
        return {"network": '{\n  "layers": []\n}\n', "training": "{}\n"}
    values = [document.model_dump(mode="json", exclude_unset=True) for document in both]
    texts = [json.dumps(each, indent=2, ensure_ascii=False) + "\n" for each in values]
    return dict(zip(_KINDS, texts, strict=True))


def _dataset_of(machine: Mapping[str, Any]) -> Path | None:
    """Return the local dataset that a run names; None without one."""
    data = machine.get("data")
    is_local = isinstance(data, str) and not is_uri(data) and "\0" not in data
    return Path(str(data)).resolve() if is_local else None


def _start_page(choices: Mapping[str, str], data: str, texts: Mapping[str, str]) -> Html:
    options = [
        tag("option", f"{name} \u00b7 {path}", value=path, selected=path == data)
        for path, name in choices.items()
    ]
    offered = tag("select", *options, id="data")
    words = {"spellcheck": "false", "autocomplete": "off"}
    name = tag("input", id="name", type="text", required=True, maxlength=100, **words)
    form = tag(
        "form",
        tag("div", tag("div", tag("label", "Dataset", for_="data"), offered), class_="controls card"),
        tag("div", *(_editor(kind, text) for kind, text in texts.items()), class_="editors"),
        tag(
            "section",
            tag("h2", "Start"),
            tag(
                "div",
                tag("div", tag("label", "Name of the run", for_="name"), name),
                tag("button", "Start the training", id="start", class_="main"),
                class_="controls",
            ),
            note("The training goes on when you close this page or end widenet ui. One runs at a time."),
        ),
        id="draft",
        class_="parts",
        novalidate=True,
    )
    return page("Start a training", "", [form], here="Start", scripts=["start.js"])


def _editor(name: str, text: str) -> Html:
    words = {"spellcheck": "false", "autocapitalize": "off", "autocomplete": "off", "wrap": "off"}
    editor = tag("textarea", text, id=name, rows=max(12, min(30, text.count("\n") + 2)), **words)
    return tag("section", tag("h2", tag("label", f"{name}.json", for_=name)), editor)


def _pending(is_pending: bool) -> Html:
    """A mark for the script, which reads the page again and again while something is pending."""
    return tag("span", hidden=True, data_pending=is_pending)


def _output(text: str | None) -> Html | str:
    if text is None:
        return ""
    label = "Output of the training"
    shown = tag("pre", text, tabindex="0", role="group", aria_label=label)
    return tag("details", tag("summary", label), shown, open=True)
