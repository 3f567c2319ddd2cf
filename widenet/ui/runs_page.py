"""The table of runs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from widenet.pictures.html import Html, brief, tag
from widenet.plan.numbers import duration
from widenet.report.listing import as_text
from widenet.ui.known_runs import Known, KnownRun
from widenet.ui.pages import link, live, page

_ABSENT = "\u2013"
_MOST_ROWS_KEPT = 4096


def runs_page(known: Known, metric: str | None = None, can_start: bool = False) -> Html:
    """Return the page with the table of runs, the newest first.

    Args:
        known: The runs.
        metric: The metric to show; None: the one that decides which epoch is best in the most runs.
        can_start: Whether the page leads to that which starts a training.
    """
    version, runs = known.version, known.runs
    metrics = list(dict.fromkeys(name for run in runs.values() for name in run.values if name != "loss"))
    metric = metric if metric in (*metrics, "loss") else _usual(runs.values())
    newest = sorted(runs.values(), key=lambda run: (-run.listed.changed.timestamp(), run.listed.name))
    rows = [_row(run, metric) for run in newest]
    return page(
        "Runs",
        live("count", "p", _count(runs.values(), known.folder.name), role="status"),
        [
            tag("p", tag("a", "Start a training", href="start", class_="main")) if can_start else "",
            _controls([*metrics, "loss"], metric) if runs else "",
            _table(rows, metric) if runs else "",
            tag("button", "Show all", id="all", type="button", hidden=True) if runs else "",
            live("none", "div", "" if runs else _none(known)),
            live("problems", "div", _problems(known.problems)),
            _chosen() if runs else "",
        ],
        here="Runs",
        version=version,
        scripts=["table.js"],
    )


def _usual(runs: Collection[KnownRun]) -> str:
    asked = Counter(run.listed.metric for run in runs if run.listed.metric is not None)
    return asked.most_common(1)[0][0] if asked else "loss"


def _count(runs: Collection[KnownRun], folder: str) -> str:
    states = Counter(run.listed.state for run in runs)
    training = f", {states['training']:,} of them training now" if states["training"] else ""
    return f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'} in {folder}{training}."


def _none(known: Known) -> Html:
    text = f"{known.folder} holds no run yet. A training that writes below it appears here when it begins."
    return tag("p", text, class_="card")


def _problems(problems: Mapping[str, str]) -> Html | str:
    if not problems:
        return ""
    entries = [tag("li", tag("b", name), f" {why}") for name, why in problems.items()]
    number = f"{len(problems):,} {'folder' if len(problems) == 1 else 'folders'} that cannot be shown"
    return tag("details", tag("summary", number), tag("ul", *entries), class_="card")


def _controls(metrics: Collection[str], metric: str) -> Html:
    options = [tag("option", name, value=name, selected=name == metric) for name in metrics]
    search = tag("input", id="find", type="search", autocomplete="off", spellcheck="false")
    return tag(
        "div",
        tag("div", tag("label", "Find", for_="find"), search),
        tag("div", tag("label", "Metric", for_="metric"), tag("select", *options, id="metric")),
        tag("p", id="found", class_="note", role="status"),
        class_="controls",
    )


def _table(rows: Collection[Html], metric: str) -> Html:
    columns = [
        ("Run", "text", ""),
        ("State", "text", "more"),
        ("Epochs", "number", "more"),
        (metric, "number", "number"),
        *([] if metric == "loss" else [("loss", "number", "number more")]),
        ("Time", "number", "number more"),
        ("Changed", "number", "more"),
    ]
    heads = [tag("th", tag("span", "Compare", class_="unseen"), scope="col")]
    for name, kind, look in columns:
        button = tag("button", name, type="button", data_kind=kind)
        order = "descending" if name == "Changed" else None
        heads.append(tag("th", button, scope="col", class_=look or None, aria_sort=order))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows, id="rows"), class_="runs")
    return tag("div", table, class_="card wide", tabindex="0", role="group", aria_label="Table of runs")


@lru_cache(_MOST_ROWS_KEPT)
def _row(run: KnownRun, metric: str) -> Html:
    facts, name = run.listed, run.listed.name
    value, loss = run.values.get(metric), run.values.get("loss")
    changed = facts.changed.astimezone()
    state: list[object] = [tag("span", facts.state, class_=f"state {facts.state}")]
    if facts.warning is not None:
        state += [" ", tag("span", "loss went up", class_="warn", title=facts.warning)]
    if facts.form is not None:
        state += [" ", tag("span", facts.form, title=f"made of {facts.made_of}")]
    box = tag("input", type="checkbox", value=name, aria_label=f"Compare {name}")
    differences = ", ".join(_differences(run))
    naming = [
        tag("a", name, href=link("run", name=name)),
        tag("span", facts.state, f" {facts.epochs}/{facts.epochs_asked}", class_="less"),
        tag("span", differences, class_="differs", title=differences),
    ]
    cells = [
        tag("td", box),
        tag("td", *naming, data_sort=name),
        tag("td", *state, class_="more", data_sort=facts.state),
        tag("td", f"{facts.epochs:,} of {facts.epochs_asked:,}", class_="more", data_sort=facts.epochs),
        tag("td", *_value(run, metric, value), class_="number", data_sort=_sortable(value)),
    ]
    if metric != "loss":
        cells.append(tag("td", *_value(run, "loss", loss), class_="number more", data_sort=_sortable(loss)))
    cells += [
        tag(
            "td",
            duration(facts.seconds) if facts.seconds else _ABSENT,
            class_="number more",
            data_sort=_sortable(facts.seconds),
        ),
        tag(
            "td",
            changed.strftime("%Y-%m-%d %H:%M"),
            class_="more",
            data_sort=_sortable(facts.changed.timestamp()),
        ),
    ]
    return live(f"run {name}", "tr", *cells)


def _sortable(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _differences(run: KnownRun) -> Iterator[str]:
    for place, value in run.differences.items():
        yield f"{place.partition('.')[2] or place} {as_text(value)}"


def _value(run: KnownRun, name: str, value: float | None) -> list[object]:
    if value is None:
        return [_ABSENT]
    is_metric = name != "loss" and run.listed.part is not None
    return [brief(value), tag("small", run.listed.part) if is_metric else ""]


def _chosen() -> Html:
    """The bar that tells how many runs are chosen, and leads to their comparison."""
    return tag(
        "div",
        tag("p", role="status", id="number"),
        tag("a", "Compare", id="compare", href="compare"),
        tag("button", "Clear", id="clear", type="button"),
        id="chosen",
        class_="chosenbar",
        hidden=True,
        role="region",
        aria_label="Chosen runs",
    )
