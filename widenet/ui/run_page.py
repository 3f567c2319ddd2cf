"""The page of one run, and the comparison of several."""

from collections.abc import Sequence

from widenet.errors import WidenetError
from widenet.pictures.html import Html, joined, table, tag
from widenet.plan.layout import DeviceKind, Job
from widenet.plan.memory import WORDS, memory
from widenet.plan.numbers import amount
from widenet.report import sections
from widenet.report import several_runs as comparison
from widenet.report.listing import ListedRun
from widenet.report.several_runs import paired_differences
from widenet.report.subject import Subject
from widenet.training.run_directory import RunDirectory, TrainingFacts
from widenet.ui.pages import link, live, page, strict

_MOST_PROCESSES = 16


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
            live("curves", "div", strict(sections.curves_section(subject))),
            live("evaluations", "div", strict(sections.evaluations_section(subject))),
            strict(sections.network_section(subject)),
            live("layers", "div", strict(sections.norms_section(subject))),
            _plan(subject.run),
            live("time", "div", strict(sections.time_section(subject))),
            live("log", "div", strict(sections.numbers_section(subject))),
            tag("p", tag("a", "The data of this run", href=link("data", run=subject.name)), class_="card"),
            strict(sections.documents_section(subject)),
            live("machine", "div", strict(sections.machine_section(subject))),
        ],
        version=version,
        scripts=["training.js"] if training else [],
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
            live("curves", "div", strict(comparison.curves_over_each_other(subjects))),
            strict(comparison.differences(subjects)),
        ],
        version=version,
    )


def _plan(run: RunDirectory) -> Html:
    """The memory that each process needs, as `widenet plan` counts it."""
    try:
        dataset = run.dataset()
        device, processes = _device(run), run.machine.get("processes")
        job = Job(
            run.layout,
            None if dataset is None else dataset.manifest.entries_per_example,
            None if dataset is None else dataset.num_examples,
            num_processes=processes if type(processes) is int and processes >= 1 else 1,
            device=device,
        )
    except (WidenetError, OSError, ValueError) as error:
        return sections.section("Plan", sections.note(str(error)))
    assumed = (
        "" if dataset is not None else " The dataset is not at hand: 100 entries an example are assumed."
    )
    number = f"{job.num_processes:,} {'process' if job.num_processes == 1 else 'processes'}"
    said = f"What widenet plan counts for {number} on {device}, not what was measured."
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
