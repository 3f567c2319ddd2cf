"""The page of a dataset: counts, how they are spread, and a search of its examples and features."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.describe import Spread
from widenet.data.manifest import PARTS, Part
from widenet.errors import DataError
from widenet.pictures.html import Html, brief, joined, table, tag
from widenet.report.sections import note, section
from widenet.training.run_path import DATA
from widenet.ui.known_runs import Known
from widenet.ui.pages import link, page, strict

_DATASETS = 8
_MOST_FOUND, _MOST_ITEMS = 20, 100


def data_page(dataset: Dataset, run: str | None, search: str, example: str | None) -> Html:
    """Return the page of a dataset.

    Args:
        dataset: The dataset.
        run: The run whose dataset it is; None: that of the command line.
        search: A part of a title, or the beginning of an id of a feature or an example.
        example: Id of an example whose history to show.
    """
    words = dataset.manifest.words
    sought = search[:200]
    found = _history(dataset, example) if example is not None else _found(dataset, run, sought)
    return page(
        dataset.manifest.name,
        tag("p", f"{dataset.path}: {dataset.num_examples:,} {words.examples}."),
        [
            tag(
                "div",
                _search(dataset, run, sought),
                tag("div", found, id="found", role="status"),
                class_="card",
            ),
            strict(section("Counts", dataset.manifest.as_table())),
            _parts(dataset.path, dataset.digest),
        ],
        here="Data",
        scripts=["search.js"],
    )


def datasets_page(known: Known) -> Html:
    """Return the page that leads to the datasets of the runs."""
    by_path: dict[str, list[str]] = {}
    for name, run in known.runs.items():
        if "data" in run.documents:
            by_path.setdefault(str(run.documents["data"]), []).append(name)
    entries = [
        tag(
            "li",
            tag("a", _name(Path(path)), href=link("data", run=names[0])),
            tag("small", f" {path}, of {len(names):,} {'run' if len(names) == 1 else 'runs'}"),
        )
        for path, names in by_path.items()
    ]
    content = tag("ul", *entries) if entries else tag("p", "No run names its dataset.")
    return page("Data", "The datasets of the runs.", [tag("div", content, class_="card")], here="Data")


def _name(path: Path) -> str:
    """The name of a dataset; with that of its run if it lies in one."""
    return f"{path.parent.name}/{path.name}" if path.name == DATA else path.name


def _search(dataset: Dataset, run: str | None, search: str) -> Html:
    words = dataset.manifest.words
    named = (name for name, field in dataset.fields.items() if field.vocabulary is not None)
    features = " and ".join(dict.fromkeys(f"{words.feature(name)}s" for name in named))
    more = f", and {features} by id or title" if features else ""
    field = tag("input", id="search", type="search", value=search, autocomplete="off", spellcheck="false")
    label = tag("label", f"Find {words.examples} by id{more}", for_="search")
    return tag("form", label, field, id="searching", data_address=link("data", run=run), role="search")


@lru_cache(_DATASETS)
def _parts(path: Path, digest: str) -> Html:
    """How the entries of every part are spread; the entries of a dataset are read once."""
    del digest  # with another one, the path holds other examples
    dataset = Dataset.open(path)
    parts = [
        _part(dataset, name, part)
        for name, field in dataset.fields.items()
        for part in (field.parts if field.kind != "dense" else ())
    ]
    return strict(joined(parts))


def _part(dataset: Dataset, field: str, part: Part) -> Html:
    words = dataset.manifest.words
    activity = Spread.of(dataset.entry_counts(field, slice(None), part))
    popularity, feature = Spread.of(dataset.counts(field, part)), words.feature(field)
    rows = [
        [
            name,
            f"{spread.number:,}",
            brief(spread.mean),
            *(f"{number:,}" for number in spread.quantiles.values()),
        ]
        for name, spread in ((words.examples, activity), (f"{feature}s", popularity))
    ]
    said = (
        f"The most popular 1 % of the {feature}s have {popularity.top_1_percent:.0%} of the entries,"
        f" 10 % have {popularity.top_10_percent:.0%}."
    )
    listed = table(["entries of", "number", "mean", *popularity.quantiles], rows, numbers=True)
    return section(f"{field}, {part}", listed, note(said))


def _found(dataset: Dataset, run: str | None, search: str) -> Html:
    if not search:
        return Html()
    examples = [
        tag("li", tag("a", name, href=link("data", run=run, user=name)))
        for name in _examples(dataset, search)
    ]
    lists = [_list(dataset.manifest.words.examples.capitalize(), examples)]
    for field in dataset.fields.values():
        if field.vocabulary is not None:
            vocabulary = dataset.vocabulary(field.name)
            items = vocabulary.search(search, _MOST_FOUND)
            entries = [
                tag(
                    "li",
                    title,
                    tag(
                        "small",
                        f" {'' if name == title else name + ': '}{vocabulary.counts[item]:,} entries",
                    ),
                )
                for (name, title), item in zip(vocabulary.named(items), items, strict=True)
            ]
            lists.append(_list(field.name, entries))
    return tag("div", *lists, class_="grid")


def _examples(dataset: Dataset, text: str) -> list[str]:
    """Return the ids that begin with a text: first the text itself, then the shortest."""
    found: list[str] = []
    exact: list[str] = []
    for batch in dataset.record_batches():
        names = batch.column("id")
        exact += names.filter(pc.equal(names, text)).slice(0, 1).to_pylist()
        found += names.filter(pc.starts_with(names, text)).slice(0, 10 * _MOST_FOUND).to_pylist()
    return list(dict.fromkeys([*exact, *sorted(found, key=lambda name: (len(name), name))]))[:_MOST_FOUND]


def _list(title: str, entries: list[Html]) -> Html:
    return tag("div", tag("h3", title), tag("ul", *entries) if entries else note("none found"))


def _history(dataset: Dataset, example: str) -> Html:
    try:
        row = dataset.row_of(example)
    except DataError as error:
        return note(str(error))
    heading = f"{dataset.manifest.words.example.capitalize()} {example}"
    return joined([tag("h2", heading), tag("div", *_histories(dataset, row), class_="grid")])


def _histories(dataset: Dataset, row: int) -> Iterator[Html]:
    for field in dataset.fields.values():
        for part in (each for each in PARTS if field.kind != "dense" and each in field.parts):
            items = dataset.sparse(field.name, [row], part).indices.tolist()
            shown = items[:_MOST_ITEMS]
            names = (
                map(str, shown) if field.vocabulary is None else dataset.vocabulary(field.name).titles(shown)
            )
            more = f"and {len(items) - len(shown):,} more" if len(items) > len(shown) else ""
            entries = [tag("li", name) for name in names]
            title = f"{field.name}, {part}: {len(items):,}"
            yield tag("div", tag("h3", title), tag("ol", *entries), note(more) if more else "")
