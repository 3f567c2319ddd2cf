"""The sections of a report about one run; a section without content is empty."""

from itertools import chain

from widenet.pictures.curves import curves
from widenet.pictures.html import Html, brief, joined, table, tag
from widenet.plan.numbers import duration
from widenet.report.recommendations import K, Sample, Shown
from widenet.report.subject import Subject
from widenet.runs.run_log import grid, log_curves, metric_names, points
from widenet.spec.document import Document
from widenet.spec.network import drawn
from widenet.training.run_directory import fitted_network
from widenet.training.run_path import FITTED
from widenet.training.state import NORMS

_NONE = Html()
_MOST_LINES = 24
_ABSENT = "\u2013"
_PHASES = {
    "steps": "seconds",
    "waiting for examples": "reading_seconds",
    "evaluation": "evaluation_seconds",
    "checkpoints": "checkpoint_seconds",
}
"""Phases of a training and their keys in the log; the seconds of steps include waiting for examples."""


def summary(subject: Subject) -> Html:
    """The most important numbers, at the top: those of the epoch whose weights the run keeps."""
    facts = [
        ("epochs", f"{subject.last.get('epoch', 0):,} of {subject.run.training.epochs:,}"),
        ("parameters", f"{sum(subject.parameters.values()):,}"),
    ]
    if "loss" in subject.kept:
        facts.insert(0, ("loss", brief(subject.kept["loss"])))
        if subject.kept["epoch"] != subject.last["epoch"]:
            facts.insert(1, ("kept epoch", f"{subject.kept['epoch']:,}"))
    metric = subject.metric
    measured = subject.measured or subject.kept
    if metric is not None and metric in measured:
        facts.insert(0, (metric, f"{measured[metric]:.4f}"))
    facts.append(("training", duration(subject.total("seconds"))))
    tiles = [tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in facts]
    warnings = (tag("p", sentence, class_="warning") for sentence in subject.warnings)
    notes = []
    if subject.measured and subject.final.metrics:
        notes.append(
            note(f"{metric} is with the fitted neighbourhood term; the curves are with the first one.")
        )
    if (form := subject.final.form) is not None:
        origin = f"made of {subject.final.made_of}, whose training this page shows"
        notes.append(note(f"{form[0].upper()}{form[1:]}, {origin}."))
    return joined([tag("div", *tiles, class_="tiles"), *notes, *warnings])


def curves_section(subject: Subject) -> Html:
    """Loss and metrics, epoch by epoch, with the epoch whose weights the run keeps."""
    if not subject.records:
        return section("Loss and metrics", note("No epoch has ended yet."))
    evaluation = subject.run.training.evaluation
    of_metrics = "" if evaluation is None else f" Metrics: over the {evaluation.part} part."
    drawing = log_curves(subject.records, subject.kept["epoch"])
    return section("Loss and metrics", drawing, note(f"Loss: over the training part.{of_metrics}"))


def network_section(subject: Subject) -> Html:
    """The layers with their sizes, and a table of the weights."""
    network, layout = subject.run.network, subject.run.layout
    sizes = {
        name: " x ".join(f"{size:,}" for size in shape) + " units" for name, shape in layout.shapes.items()
    }
    rows = [
        [
            name,
            f"{weight.rows:,}",
            f"{weight.row_length:,}",
            f"{weight.numbers:,}",
            "in shards of rows" if weight.wide else "whole",
        ]
        for name, weight in layout.weights.items()
    ]
    listed = table(["weight", "rows", "columns", "numbers", "held"], rows)
    return section(
        "Network",
        tag("div", drawn(network, sizes, subject.parameters), listed, class_="beside"),
    )


def data_section(subject: Subject) -> Html:
    """The dataset's contents, or why it is not available."""
    if subject.manifest is None:
        return section("Data", note(subject.without_data))
    facts = [[subject.words.examples, f"{subject.manifest.num_examples:,}"]]
    facts += [
        [name.replace("_", " "), brief(value)]
        for name, value in subject.manifest.source.items()
        if isinstance(value, int | str)
    ]
    rest = tag("details", tag("summary", "How it was made"), table(["", ""], facts, class_="facts"))
    text = tag("p", f"{subject.manifest.num_examples:,} {subject.words.examples}; entries of each part:")
    return section("Data", text, subject.manifest.as_table(), rest)


def recommendations_section(subject: Subject) -> Html:
    """Recommendations for a sample of examples."""
    sample = subject.sample
    if sample is None:
        return _NONE
    text = f'The {K} best of output "{sample.output}" for some {subject.words.examples}:'
    cards = tag(
        "div", *(_card(shown, sample, subject.words.example) for shown in sample.shown), class_="cards"
    )
    return section("Recommendations", tag("p", text), cards)


def _card(shown: Shown, sample: Sample, example: str) -> Html:
    more = shown.num_history - len(shown.history)
    titles, earlier = "; ".join(shown.history), f"{more:,} earlier; " if more else ""
    history = earlier + titles if shown.is_sequence else titles + (f"; and {more:,} more" if more else "")
    lines = [
        tag("li", title, tag("small", f" {score:.3g}"), class_="aside" if aside else None)
        for title, score, aside in shown.recommended
    ]
    remark: Html | str = ""
    if sample.truth is not None:
        hits = sum(aside for _, _, aside in shown.recommended)
        remark = note(f"In the {sample.truth} part, unknown to the model: {hits} of these.")
    heading = tag("h3", f"{example.capitalize()} {shown.user}")
    had = tag("p", tag("b", "had "), history or "nothing")
    return tag("article", heading, had, tag("ol", *lines), remark)


def norms_section(subject: Subject) -> Html:
    """The norms of weights, and of gradients and activations of each epoch's last step; empty without any."""
    entries = dict.fromkeys(chain.from_iterable(subject.records))
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in entries:
        if name.startswith(NORMS):
            group, _, own = name.removeprefix(NORMS).partition("/")
            groups.setdefault(group, {})[own] = points(subject.records, name)
    figures = [
        curves(f"norms of {group}", dict([*each.items()][:_MOST_LINES])) for group, each in groups.items()
    ]
    return section("Layers", grid(figures)) if figures else _NONE


def time_section(subject: Subject) -> Html:
    """The seconds of each phase, and curves of speed and learning rate."""
    if not subject.records:
        return _NONE
    parts = _phases(subject)
    most = sum(seconds for _, seconds in parts) or 1.0
    rows = [
        [name, duration(seconds), f"{seconds / most:.1%}"] for name, seconds in [*parts, ("in all", most)]
    ]
    lines = {name: points(subject.records, key) for name, key in _PHASES.items()}
    drawing = curves("seconds an epoch", {name: line for name, line in lines.items() if line})
    named = f"{subject.words.examples} a second"
    speed = curves(named, {named: points(subject.records, "examples_per_second")})
    rate = curves("learning rate", {"learning rate": points(subject.records, "learning_rate")})
    return section(
        "Time",
        table(["phase", "time", "share"], rows, numbers=True),
        grid([drawing, speed, rate]),
    )


def _phases(subject: Subject) -> list[tuple[str, float]]:
    """The seconds of each phase that the log has, without overlaps."""
    waiting = subject.total("reading_seconds")
    phases = {"steps": subject.total("seconds") - waiting, "waiting for examples": waiting}
    phases |= {name: subject.total(key) for name, key in _PHASES.items() if name not in phases}
    return [(name, seconds) for name, seconds in phases.items() if points(subject.records, _PHASES[name])]


def numbers_section(subject: Subject) -> Html:
    """The log as a table."""
    if not subject.records:
        return _NONE
    names = ["epoch", "loss", "seconds", "examples_per_second", *metric_names(subject.records)]
    rows = [[brief(record.get(name, "")) for name in names] for record in subject.records]
    listed = table([name.replace("_", " ") for name in names], rows)
    return section("Numbers", tag("details", tag("summary", "Every epoch"), listed))


def machine_section(subject: Subject) -> Html:
    """The machine and the versions of libraries."""
    rows = [[name, brief(value)] for name, value in subject.run.machine.items()]
    return section("Machine and versions", table(["", ""], rows, class_="facts")) if rows else _NONE


def documents_section(subject: Subject) -> Html:
    """The two documents, with all defaults written out."""
    run = subject.run
    documents: dict[str, Document] = {"network.json": run.network, "training.json": run.training}
    if (spec := fitted_network(subject.final)) is not None:
        documents[FITTED] = spec
    shown = [
        tag("details", tag("summary", name), tag("pre", document.to_json()))
        for name, document in documents.items()
    ]
    return section("Documents", *shown)


def section(title: str, *content: object) -> Html:
    """A section of the page with its heading."""
    return joined([tag("section", tag("h2", title), *content)])


def note(text: str) -> Html:
    """A remark in small print."""
    return tag("p", text, class_="note")
