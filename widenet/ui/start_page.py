"""The page that starts a training, its plan, and what the page of a run says of its training."""

from collections.abc import Mapping

from widenet.pictures.html import Html, joined, tag
from widenet.plan.fit import mostly
from widenet.plan.job import Job
from widenet.plan.memory import memory
from widenet.plan.numbers import amount
from widenet.plan.report import checkpoint_bytes
from widenet.report.listing import ListedRun
from widenet.report.sections import note
from widenet.ui.draft import KINDS, Checked
from widenet.ui.known_runs import Known
from widenet.ui.memory_figure import memory_figure
from widenet.ui.pages import link, live, page
from widenet.ui.trainings import Trainings

_MOST_MODELS = 100


def start_page(
    choices: Mapping[str, str],
    data: str | None,
    like: str,
    known: Known,
    texts: Mapping[str, str],
    fields: str,
) -> Html:
    """Return the page that starts a training.

    Args:
        choices: Names of datasets by path.
        data: Path of the chosen one; None: there is none.
        like: The run whose documents are shown; "": the default ones are.
        known: The runs.
        texts: The documents.
        fields: Names of the dataset's fields, separated by spaces, to complete.
    """
    if data is None:
        return page("Start a training", "", [tag("p", _no_dataset(known), class_="card")])
    names = sorted(known.runs, key=lambda name: -known.runs[name].listed.changed.timestamp())[:_MOST_MODELS]
    models = [
        ("", "the defaults for this dataset"),
        *((name, name) for name in dict.fromkeys([*names, like]) if name),
    ]
    datasets = [(path, f"{name} \u00b7 {path}") for path, name in choices.items()]
    controls = tag(
        "div",
        _select("data", "Dataset", datasets, data),
        _select("like", "Begin with the documents of", models, like),
        tag(
            "p",
            "Ctrl+Space goes from a document to the list of what you can write there, and Escape back.",
            id="keys",
            class_="note",
        ),
        class_="controls card",
    )
    editors = tag("div", *(_editor(name, texts[name]) for name in KINDS), class_="editors")
    plan = tag(
        "section",
        tag("h2", "Plan"),
        tag("p", id="mistake-", class_="error", role="status", hidden=True),
        tag("div", id="plan", role="status"),
        tag("p", tag("button", "Measure the time", id="measure", type="button")),
        tag("pre", id="measured", hidden=True, tabindex="0", role="status", aria_label="Measured"),
    )
    form = tag(
        "form",
        controls,
        editors,
        plan,
        _begin(),
        id="draft",
        class_="parts",
        data_fields=fields,
        novalidate=True,
    )
    return page("Start a training", "", [form], here="Start", scripts=["start.js"])


def _begin() -> Html:
    """The section with the button that starts the training."""
    number = tag("input", id="processes", type="number", value=1, min=1, required=True)
    name = tag(
        "input", id="name", type="text", required=True, autocomplete="off", spellcheck="false", maxlength=100
    )
    return tag(
        "section",
        tag("h2", "Start"),
        tag(
            "div",
            tag("div", tag("label", "Name of the run", for_="name"), name),
            tag("div", tag("label", "Processes", for_="processes"), number),
            tag("button", "Start the training", id="start", class_="main"),
            class_="controls",
        ),
        note("The training goes on when you close this page or end widenet ui. One training runs at a time."),
    )


def _no_dataset(known: Known) -> str:
    return (
        f"No run in {known.folder.name} names a dataset that is still at hand. Start widenet ui with"
        " the option data, for one dataset, or datasets, for a folder of them."
    )


def _select(name: str, label: str, options: list[tuple[str, str]], chosen: str) -> Html:
    listed = [tag("option", text, value=value, selected=value == chosen) for value, text in options]
    return tag("div", tag("label", label, for_=name), tag("select", *listed, id=name))


def _editor(name: str, text: str) -> Html:
    file = f"{name}.json"
    editor = tag(
        "textarea",
        text,
        id=name,
        rows=max(12, min(30, text.count("\n") + 2)),
        spellcheck="false",
        autocapitalize="off",
        autocomplete="off",
        wrap="off",
        aria_describedby=f"mistake-{name} keys",
    )
    return tag(
        "section",
        tag("h2", tag("label", file, for_=name)),
        editor,
        tag("p", id=f"mistake-{name}", class_="error", role="status", hidden=True),
        tag(
            "div",
            id=f"fields-{name}",
            class_="completion",
            role="group",
            aria_label=f"What may stand here in {file}",
        ),
    )


def plan_page(checked: Checked) -> Html:
    """Return the page with the mistakes of a draft, or else its plan; a script takes it apart."""
    mistakes = [tag("p", sentence, data_mistake=name) for name, sentence in checked.mistakes.items()]
    plan = [] if checked.job is None else [_plan(checked.job, checked)]
    return page("Plan", "", [*mistakes, tag("div", *plan, id="plan")])


def _plan(job: Job, checked: Checked) -> Html:
    needed, device_bytes, training = memory(job), checked.device_bytes, job.training
    need = f"A process needs {amount(needed.total)}: mostly {mostly(needed)}."
    fits = device_bytes is None or needed.total <= device_bytes
    if device_bytes is not None:
        need += f" {'It fits' if fits else 'It does not fit'}: there are {amount(device_bytes)} for each."
    steps = -(-checked.num_examples // training.batch_size)
    said = (
        f"An epoch has {steps:,} steps, the training {training.epochs:,} epochs."
        f" A checkpoint takes {amount(checkpoint_bytes(job))} on disk."
    )
    return joined([tag("p", need, class_=None if fits else "warning"), memory_figure(job), note(said)])


def begun_page(name: str, trainings: Trainings, version: int) -> Html:
    """Return the page of a training that has not made its run yet."""
    path = trainings.path(name)
    is_alive = trainings.is_alive(path)
    said = "begins" if is_alive else "ended before its run began"
    content = [_pending(is_alive), *_ways(name), _output(trainings.output(path))]
    return page(
        name,
        live("state", "p", f"The training {said}.", role="status"),
        [live("training", "div", *content, class_="card")],
        version=version,
        scripts=["training.js"],
    )


def training_part(run: ListedRun, trainings: Trainings) -> Html:
    """Return what the page of a run says of its training: stop, resume, and what it prints."""
    path, is_alive = run.path, trainings.is_alive(run.path)
    pieces: list[object] = []
    pending = False
    if run.state == "training" and trainings.is_stopping(path):
        pieces, pending = [tag("p", "It saves a checkpoint and ends.")], True
    elif run.state == "training" and is_alive:
        pieces = [_button("stop", "Stop with a checkpoint", run.name)]
    elif run.state == "training":
        pieces = [note("These pages have not started this training. Stop it where it was started.")]
    elif is_alive:
        pieces, pending = [tag("p", "The training begins, or ends.")], True
    elif run.state != "finished":
        pieces = [_button("resume", "Resume", run.name)]
    return live(
        "training",
        "div",
        *pieces,
        _pending(pending),
        *_ways(run.name),
        _output(trainings.output(path)),
        class_="card",
    )


def _pending(is_pending: bool) -> Html:
    """A mark for the script, which reads the page again and again while something is pending."""
    return tag("span", hidden=True, data_pending=is_pending)


def _button(action: str, label: str, name: str) -> Html:
    return tag("button", label, type="button", class_="main", data_action=action, data_run=name)


def _ways(name: str) -> list[Html]:
    return [tag("p", tag("a", "Start another training with these documents", href=link("start", like=name)))]


def _output(text: str | None) -> Html | str:
    if text is None:
        return ""
    label = "Output of the training"
    shown = tag("pre", text, tabindex="0", role="group", aria_label=label)
    return tag("details", tag("summary", label), shown, open=True)
