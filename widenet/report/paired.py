"""The section of a report with paired differences of runs, from the evaluations that the runs keep."""

from collections.abc import Sequence
from functools import lru_cache

from widenet.errors import WidenetError
from widenet.metrics.comparison import Comparison, cells, compared
from widenet.metrics.kept import KeptEvaluation
from widenet.pictures.html import Html, table, tag
from widenet.report.sections import note, section
from widenet.report.subject import Subject

_LEVEL = 0.95
_MOST_USERS = 200_000
"""Users whose differences are resampled for a page."""
_MOST_COMPARISONS_KEPT = 64


def paired_differences(subjects: Sequence[Subject]) -> Html:
    """Tables that compare each further run with the first; a note where the runs keep no evaluation."""
    try:
        kept = [subject.evaluations for subject in subjects]
        shared = [each for each in kept[0] if all(each in others for others in kept[1:])]
        pieces = [
            piece
            for each in shared
            for piece in _tables(subjects, [evaluations[each] for evaluations in kept])
        ]
    except (WidenetError, OSError) as error:
        return section("Paired differences", note(str(error)))
    if not pieces:
        return section(
            "Paired differences",
            note(
                "The runs keep no evaluation of the same part of the same dataset. Evaluate each of them"
                ' with the option "keep".'
            ),
        )
    remark = note(
        "Positive: better than the first run. The interval is a paired bootstrap over"
        f" {subjects[0].words.examples}, p is of a sign-flip permutation test."
    )
    return section("Paired differences", *pieces, remark)


def _tables(subjects: Sequence[Subject], kept: Sequence[KeptEvaluation]) -> list[Html]:
    number, examples = int(kept[0].metrics["num_examples"]), subjects[0].words.examples
    pieces = [tag("h3", kept[0].title(examples))]
    if number > _MOST_USERS:
        return [*pieces, note(f"More {examples} than a page resamples: use `widenet compare`.")]
    for subject, other in zip(subjects[1:], kept[1:], strict=True):
        comparison = _compared(kept[0], other)
        header = ["", subjects[0].name, subject.name, "difference", f"{_LEVEL * 100:g} % interval", "p"]
        rows = [[name, *cells(one)] for name, one in comparison.metrics.items()]
        pieces.append(table(header, rows, numbers=True))
    return pieces


@lru_cache(_MOST_COMPARISONS_KEPT)
def _compared(first: KeptEvaluation, second: KeptEvaluation) -> Comparison:
    return compared(first.read(), second.read(), _LEVEL)
