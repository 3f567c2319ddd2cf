"""The page of one run, and the comparison of several."""

from collections.abc import Sequence

from widenet.pictures.html import Html, joined, tag
from widenet.report import sections
from widenet.report import several_runs as comparison
from widenet.report.listing import ListedRun
from widenet.report.subject import Subject
from widenet.ui.pages import link, live, page, strict


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
            strict(sections.network_section(subject)),
            live("layers", "div", strict(sections.norms_section(subject))),
            live("time", "div", strict(sections.time_section(subject))),
            live("log", "div", strict(sections.numbers_section(subject))),
            strict(sections.data_section(subject)),
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
            live("curves", "div", strict(comparison.curves_over_each_other(subjects))),
            strict(comparison.differences(subjects)),
        ],
        version=version,
    )
