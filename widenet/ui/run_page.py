"""The page of one run, and the comparison of several."""

from collections.abc import Sequence

from widenet.errors import WidenetError
from widenet.pictures.html import Html, brief, joined, table, tag
from widenet.plan.job import DeviceKind, Job
from widenet.plan.memory import WORDS, memory
from widenet.plan.numbers import amount
from widenet.report import sections
from widenet.report import several_runs as comparison
from widenet.report.listing import ListedRun
from widenet.report.several_runs import paired_differences
from widenet.report.subject import Subject
from widenet.training.environment import recorded_processes
from widenet.training.run_directory import RunDirectory
from widenet.training.run_log import grid, metric_names
from widenet.training.saved_facts import TrainingFacts
from widenet.ui.pages import PLOTS, link, live, page, plot, strict

_LAST_EPOCHS, _MOST_PROCESSES = 20, 16


def run_page(subject: Subject, facts: ListedRun, version: int, training: Html | None = None) -> Html:
    """Return the page of a run.

    Args:
        subject: The run.
        facts: Its facts in the list of runs.
        version: Version of the runs.
        training: What there is to say and to do about its training; None: nothing.
    """
    name = subject.run.network.name
    state = f"{facts.state}: epoch {facts.epochs:,} of {facts.epochs_asked:,}"
    below = [
        live("state", "p", tag("span", state, class_=f"state {facts.state}"), role="status"),
        tag("p", f"Network: {name}" if name else ""),
    ]
    return page(
        subject.name,
        joined(below),
        [
            live("summary", "div", strict(sections.summary(subject))),
            training or "",
            live("curves", "div", strict(sections.curves_section(subject, plot))),
            live("evaluations", "div", strict(sections.evaluations_section(subject))),
            strict(sections.network_section(subject)),
            live("layers", "div", strict(sections.norms_section(subject, plot))),
            _plan(subject.run),
            live("time", "div", strict(sections.time_section(subject, plot))),
            live("log", "div", strict(_log(subject))),
            tag("p", tag("a", "The data of this run", href=link("data", run=subject.name)), class_="card"),
            strict(sections.documents_section(subject)),
            live("machine", "div", strict(sections.machine_section(subject))),
        ],
        version=version,
        scripts=[*PLOTS, *(["training.js"] if training else [])],
    )


def compare_page(subjects: Sequence[Subject], version: int) -> Html:
    """Return the page that compares runs: metrics, curves over each other, and differences."""
    links = [tag("a", subject.name, href=link("run", name=subject.name)) for subject in subjects]
    return page(
        f"{len(subjects)} runs",
        tag("p", *(piece for each in links for piece in (each, " "))),
        [
            live("numbers", "div", strict(comparison.final_numbers(subjects))),
            live("paired", "div", strict(paired_differences(subjects))),
            live("curves", "div", strict(_curves(subjects))),
            strict(comparison.differences(subjects)),
        ],
        version=version,
        scripts=PLOTS,
    )


def _curves(subjects: Sequence[Subject]) -> Html:
    """A figure for the loss and each metric, each with a line for each run."""
    figures = [plot(name, lines) for name, lines in comparison.lines_of(subjects).items()]
    return sections.section("Loss and metrics", grid(figures))


def _plan(run: RunDirectory) -> Html:
    """The memory that each process needs, as `widenet plan` counts it."""
    try:
        dataset = run.dataset()
        device = _device(run)
        job = Job.of(
            run.layout,
            None if dataset is None else dataset.manifest.entries_per_example,
            None if dataset is None else dataset.num_examples,
            num_processes=recorded_processes(run.machine),
            device=device,
        )
    except (WidenetError, OSError, ValueError) as error:
        return sections.section("Plan", sections.note(str(error)))
    assumed = (
        "" if dataset is not None else " The dataset is not at hand: 100 entries an example are assumed."
    )
    kind = "CPUs" if device == "cpu" else "GPUs"
    said = f"What widenet plan counts for {job.num_processes:,} processes on {kind}, not what was measured."
    if job.num_processes == 1:
        said = said.replace("1 processes", "one process").replace(f"on {kind}", f"on a {kind[:-1]}")
    processes = range(min(job.num_processes, _MOST_PROCESSES))
    needed = [vars(memory(job, process)) for process in processes]
    parts = [name for name in needed[0] if any(sizes[name] for sizes in needed)]
    rows = [[WORDS.get(name, name), *(amount(sizes[name]) for sizes in needed)] for name in parts]
    rows.append(["in all", *(amount(sum(sizes.values())) for sizes in needed)])
    listed = table(["", *(f"process {process}" for process in processes)], rows, numbers=True)
    return strict(sections.section("Plan", listed, sections.note(said + assumed)))


def _device(run: RunDirectory) -> DeviceKind:
    """Return the kind of device that wrote the newest checkpoint."""
    checkpoint = run.latest()
    kept = {} if checkpoint is None else TrainingFacts.of(checkpoint.facts).environment
    return "cuda" if kept.get("device") == "cuda" else "cpu"


def _log(subject: Subject) -> Html:
    """The last lines of the log, the newest first."""
    if not subject.records:
        return sections.section("Log", sections.note("No epoch has ended yet."))
    records = subject.records[-_LAST_EPOCHS:][::-1]
    names = ["epoch", "loss", *metric_names(records), "learning_rate", "examples_per_second", "seconds"]
    rows = [[brief(record.get(name, "")) for name in names] for record in records]
    listed = table([name.replace("_", " ") for name in names], rows)
    number = len(subject.records)
    said = (
        f"All {number:,} epochs"
        if number <= _LAST_EPOCHS
        else f"The last {_LAST_EPOCHS} of {number:,} epochs"
    )
    return sections.section("Log", listed, sections.note(f"{said}, the newest first, from log.jsonl."))
