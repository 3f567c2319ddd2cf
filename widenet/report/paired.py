"""The section of a report with paired differences of runs, from the evaluations that the runs keep."""

from collections.abc import Sequence
from functools import lru_cache

from widenet.checkpoint import Checkpoint
from widenet.errors import WidenetError
from widenet.metrics.comparison import Comparison, cells, compared
from widenet.metrics.kept import Evaluated, KeptEvaluation, kept_evaluations
from widenet.pictures.html import Html, table, tag
from widenet.report.sections import note, section
from widenet.report.subject import Subject
from widenet.training.saved_facts import WeightsFacts

_LEVEL = 0.95
_MOST_USERS = 200_000
"""Users whose differences are resampled for a page."""
_MOST_COMPARISONS_KEPT = 64


def paired_differences(subjects: Sequence[Subject]) -> Html:
    """Tables that compare each further run with the first; a note where the runs keep no evaluation."""
    try:
        kept = [_of_weights(subject) for subject in subjects]
        shared = [each for each in kept[0] if all(each in others for others in kept[1:])]
        pieces = [
            piece
            for each in shared
            for piece in _tables(each, subjects, [evaluations[each] for evaluations in kept])
        ]
    except (WidenetError, OSError) as error:
        return section("Paired differences", note(str(error)))
    if not pieces:
        return section(
            "Paired differences",
            note(
                "The runs keep no evaluation of the same part of the same dataset. Evaluate each of them with"
                " `keep`."
            ),
        )
    remark = note(
        "Positive: better than the first run. The interval is a paired bootstrap over users, p is of a"
        " sign-flip permutation test."
    )
    return section("Paired differences", *pieces, remark)


def _of_weights(subject: Subject) -> dict[Evaluated, KeptEvaluation]:
    """The evaluations of a run's present weights."""
    path = subject.run.path
    found = kept_evaluations(path)
    if not found or not (path / "model").is_dir():
        return {}
    fingerprint = WeightsFacts.of(Checkpoint.open(path / "model").facts).fingerprint
    return {each.evaluated: each for each in found if each.fingerprint == fingerprint}


def _tables(each: Evaluated, subjects: Sequence[Subject], kept: Sequence[KeptEvaluation]) -> list[Html]:
    number = int(kept[0].metrics["num_examples"])
    title = f"{each.part}, {number:,} users" + ("" if each.exclude_seen else ", seen items included")
    if number > _MOST_USERS:
        return [tag("h3", title), note("More users than a page resamples: use `widenet compare`.")]
    pieces = [tag("h3", title)]
    for subject, other in zip(subjects[1:], kept[1:], strict=True):
        comparison = _compared(kept[0], other)
        header = ["", subjects[0].name, subject.name, "difference", f"{_LEVEL * 100:g} % interval", "p"]
        rows = [[name, *cells(one)] for name, one in comparison.metrics.items()]
        pieces.append(table(header, rows, numbers=True))
    return pieces


@lru_cache(_MOST_COMPARISONS_KEPT)
def _compared(first: KeptEvaluation, second: KeptEvaluation) -> Comparison:
    return compared(first.read(), second.read(), _LEVEL)
