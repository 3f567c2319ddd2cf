"""The whole page of a report."""

from collections.abc import Sequence
from pathlib import Path

from widenet.pictures.html import Html, joined, tag
from widenet.report import sections
from widenet.report import several_runs as comparison
from widenet.report.several_runs import paired_differences
from widenet.report.subject import Subject


def page(subjects: Sequence[Subject]) -> Html:
    """The HTML of a report about one or more runs; it has no script and loads nothing."""
    return _of_one(subjects[0]) if len(subjects) == 1 else _of_several(subjects)


def _of_one(subject: Subject) -> Html:
    parts = [
        sections.summary(subject),
        sections.curves_section(subject),
        sections.evaluations_section(subject),
        sections.network_section(subject),
        sections.norms_section(subject),
        sections.recommendations_section(subject),
        sections.data_section(subject),
        sections.time_section(subject),
        sections.numbers_section(subject),
        sections.documents_section(subject),
        sections.machine_section(subject),
    ]
    return whole(subject.name, subject.run.network.name, parts)


def _of_several(subjects: Sequence[Subject]) -> Html:
    parts = [
        comparison.final_numbers(subjects),
        paired_differences(subjects),
        comparison.curves_over_each_other(subjects),
        comparison.differences(subjects),
    ]
    return whole(f"{len(subjects)} runs", ", ".join(subject.name for subject in subjects), parts)


def whole(title: str, below: str, parts: Sequence[Html]) -> Html:
    """Return a page of some sections, with a title and a line below it."""
    style = Html((Path(__file__).parent / "page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} \u2013 widenet"),
        tag("style", style),
    )
    heading = tag("header", tag("h1", title), tag("p", below))
    html = tag("html", head, tag("body", tag("main", heading, *parts)), lang="en")
    return joined([Html("<!doctype html>\n"), html, Html("\n")])
