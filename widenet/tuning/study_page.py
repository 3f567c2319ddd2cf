"""The page of a study, and its best documents."""

import json
from collections.abc import Sequence
from typing import Any

from widenet.pictures.curves import bars, curves
from widenet.pictures.html import Html, joined, table, tag
from widenet.report.sections import note, section
from widenet.report.write import whole
from widenet.stores.durable import appearing
from widenet.tuning.results import StudyResult, results_of
from widenet.tuning.rungs import Trial
from widenet.tuning.space import from_values
from widenet.tuning.study import Study
from widenet.tuning.suggest import importance

FILE_NAME = "report.html"

_NONE = "\u2013"


def write_results(study: Study) -> None:
    """Write the page of a locked study and the documents of its best trial, in `best`."""
    trials = study.journal.trials()
    best = study.rungs.best(trials)
    if best is not None:
        (study.path / "best").mkdir(exist_ok=True)
        network, training = study.space.documents(from_values(best.choices))
        for name, document in (("network.json", network), ("training.json", training)):
            with appearing(study.path / "best" / name) as file:
                file.write(document.to_json().encode())
    with appearing(study.path / FILE_NAME) as file:
        file.write(page(study, trials).encode("utf-8", errors="xmlcharrefreplace"))


def page(study: Study, trials: Sequence[Trial]) -> Html:
    """Return the HTML of a study's page."""
    result = results_of(study, trials)
    best = result.best
    parts = [
        _summary(result),
        section("Best so far", *_best_so_far(study, trials)),
        *_importance(study, trials),
        section("Trials", _table(result)),
        Html() if best is None else _documents(study, trials[best.number]),
    ]
    return whole(study.path.resolve().name, f"a search of {len(trials):,} trials", parts)


def _summary(result: StudyResult) -> Html:
    states = [trial.state for trial in result.trials]
    facts = [
        ("finished", f"{states.count('finished'):,}"),
        ("waiting", f"{states.count('waiting'):,}"),
        ("training", f"{states.count('training'):,}"),
        ("failed", f"{states.count('failed'):,}"),
        ("epochs", f"{result.total_epochs:,}"),
        ("of all trials' epochs", f"{result.share_of_epochs:.1%}"),
    ]
    best = result.best
    if best is not None and best.value is not None:
        facts = [(result.metric, f"{best.value:.4f}"), ("best trial", f"{best.number}"), *facts]
    tiles = [tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in facts]
    return tag("div", *tiles, class_="tiles")


def _best_so_far(study: Study, trials: Sequence[Trial]) -> list[Html]:
    """The best metric of each rung over the epochs that all trials have trained."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for epochs in study.rungs.epochs:
        stops = sorted(
            (trial.spent[str(epochs)], trial.reached[epochs])
            for trial in trials
            if epochs in trial.reached and str(epochs) in trial.spent
        )
        best: list[tuple[float, float]] = []
        for spent, value in stops:
            best.append((spent, max(value, best[-1][1] if best else value)))
        if best:
            lines[f"epoch {epochs:,}"] = best
    text = f"The best {study.metric} of the trials at each rung. Across: the epochs of all trials so far."
    return [curves(f"best {study.metric}", lines, across="epochs of all trials"), note(text)]


def _importance(study: Study, trials: Sequence[Trial]) -> list[Html]:
    shares = importance(study.space, study.rungs, trials)
    if not shares:
        return []
    first = study.rungs.epochs[0]
    text = (
        f"Share of each choice in the differences after epoch {first:,}, which all trials have trained:"
        " PED-ANOVA, by Optuna. It compares the best tenth of the trials with all of them."
    )
    drawn = bars("importance", [*shares], {"share": [*shares.values()]})
    return [section("Choices", drawn, note(text))]


def _table(result: StudyResult) -> Html:
    places = list(dict.fromkeys(place for trial in result.trials for place in trial.choices))
    header = ["trial", "state", "epochs", result.metric, *places]
    rows = [
        [
            f"{trial.number}",
            trial.state if trial.problem is None else tag("span", trial.state, title=trial.problem),
            f"{trial.epochs:,}",
            _NONE if trial.value is None else f"{trial.value:.4f}",
            *(_shown(trial.choices[place]) if place in trial.choices else _NONE for place in places),
        ]
        for trial in sorted(result.trials, key=lambda trial: (-trial.epochs, -(trial.value or 0.0)))
    ]
    failed = [tag("p", f"Trial {trial.number}: {trial.problem}") for trial in result.trials if trial.problem]
    return joined([table(header, rows), *failed])


def _documents(study: Study, trial: Trial) -> Html:
    network, training = study.space.documents(from_values(trial.choices))
    shown = [
        tag("details", tag("summary", name), tag("pre", document.to_json()))
        for name, document in (("network.json", network), ("training.json", training))
    ]
    text = f"Trial {trial.number}; the same files are in {study.path / 'best'}."
    return section("The best documents", tag("p", text), *shown)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
