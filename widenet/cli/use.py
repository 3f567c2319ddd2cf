"""Commands that use a trained run: recommendations, neighbours, and runs that are made of it."""

import json
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import Device, IncludeSeen, Run, values_of, with_flags_of
from widenet.cli.output import (
    AsJson,
    print_json,
    print_lines,
    print_result,
    recommendations_table,
    say,
    warnings_as_sentences,
)
from widenet.cli.processes import Processes, leads, run_in_processes
from widenet.errors import OptionError
from widenet.runs.run_arguments import (
    LoadArguments,
    PredictArguments,
    RecommendArguments,
)
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from widenet.runs import Model


@with_flags_of(RecommendArguments)
def recommend(
    run: Run,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="A further field of the user, such as country=NL or age=0.34; may be given several times.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="The id of a user, instead of items.")] = None,
    include_seen: IncludeSeen = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Also print which items of the history add most to each score."),
    ] = False,
    as_json: AsJson = False,
    device: Device = None,
    **words: Any,
) -> None:
    """Recommend items to a new user or to one of a dataset.

    Example: widenet recommend RUN --items "The Hobbit" "Emma" -k 10.

    The named items, or those that the user has, are left out, unless you add --include-seen.
    If the network reads a sequence, the order of the items counts: name the newest last.
    """
    from widenet.training.run_path import check_run

    rules = values_of(RecommendArguments, words)
    items, output, data = rules.pop("items") or [], rules["output"], rules.pop("data")
    OptionError.require(user is None or not items, "excludes `items`", option="user")
    OptionError.require(user is not None or data is None, "needs `user`", option="data")
    OptionError.require(user is not None or items or field, "must name at least one item", option="items")
    is_explained = explain and field
    OptionError.require(not is_explained, "is for networks that read items alone", option="explain")
    RecommendArguments(**rules)
    check_run(run)
    from widenet.runs import Model  # loads torch

    model = Model.load(run, device)
    fields = _fields(model, field or [])
    who: dict[str, Any] = {"items": items} if user is None else {"data": data}
    with warnings_as_sentences():
        rows = model.recommend(**who, users=user, fields=fields, exclude_seen=not include_seen, **rules)
        reasons = (
            [model.explain(row.item, **who, user=user, output=output) for row in rows] if explain else None
        )
    if as_json:
        facts: list[dict[str, Any]] = [asdict(row) for row in rows]
        for fact, because in zip(facts, reasons or (), strict=False):
            fact["because"] = because
        print_json(facts)
        return
    for name, titles in (model.understood(items, fields, output) if items or fields else {}).items():
        say(f"With {name}: {'; '.join(titles)}")
    print_lines(recommendations_table(rows, reasons))


def _fields(model: "Model", texts: list[str]) -> dict[str, list[Any]]:
    """Read the options --field: by field its names, or the comma-separated numbers of a dense field."""
    fields_by_name: dict[str, list[Any]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        OptionError.require(name and value, "must be FIELD=VALUE", option="field", value=text)
        values: list[Any] = [value]
        if name in model.run.fields and model.run.fields[name].kind == "dense":
            try:
                values = [float(number) for number in value.split(",")]
            except ValueError:
                raise OptionError("must be numbers", option="field", value=text) from None
        fields_by_name.setdefault(name, []).extend(values)
    return fields_by_name


@with_flags_of(PredictArguments, LoadArguments)
def predict(
    context: typer.Context,
    out: Annotated[Path, IN_STORES, typer.Option(help="The file to write: .parquet, .csv or .jsonl.")],
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="parquet, csv or jsonl. Default: recognized by the suffix."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier file of recommendations.")
    ] = False,
    include_seen: IncludeSeen = False,
    as_json: AsJson = False,
    processes: Processes = None,
    **words: Any,
) -> None:
    """Write the best items for every user of a dataset, best first, with their scores.

    A .parquet or .csv file has a row for each: user, item, score, rank. A .jsonl file has a line for each
    user.

    Items that a user has in any part of the dataset are left out, unless you add --include-seen.
    To compare with a part that was set aside, name it with --part.
    """
    from widenet.data.dataset import Dataset
    from widenet.predict.files import check_results, open_results
    from widenet.runs.progress import counting
    from widenet.training.run_path import check_run

    options = values_of(PredictArguments, words) | {"exclude_seen": not include_seen}
    PredictArguments(**options)
    check_results(out, file_format, overwrite)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.runs import Model  # loads torch

    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    with warnings_as_sentences():
        blocks = model.predict(**options, say=say)
    if not leads():
        deque(blocks, maxlen=0)
        return
    total = 0
    with (
        open_results(out, file_format, overwrite=overwrite) as results,
        counting("predicting", dataset.num_examples) as advance,
    ):
        for block in blocks:
            results.write(block)
            advance(len(block.users))
            total += len(block.items)
    print_result(
        as_json,
        {"out": shown(out), "num_recommendations": total, "num_users": dataset.num_examples},
        f"{shown(out)}: {total:,} recommendations for {dataset.num_examples:,}"
        f" {dataset.manifest.words.examples}.",
    )


knn = typer.Typer(
    help="Find the nearest of many vectors exactly, or write an approximate index.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Measure = Literal["dot", "cosine", "l2"]


@knn.command("like")
def like(
    run: Run,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An id, a title or part of a title.")],
    layer: Annotated[
        str | None,
        typer.Option(help="The sparse input or the output whose units to compare. Default: the only output."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Number of items.", min=1)] = 10,
    measure: Annotated[
        _Measure,
        typer.Option(help="Measure of nearness: a large product, a large cosine or a small distance."),
    ] = "cosine",
    as_json: AsJson = False,
    device: Device = None,
) -> None:
    """Show the items that are most similar to one in a run: widenet knn like RUN "The Hobbit"."""
    from widenet.knn.neighbours import layer_with_vectors
    from widenet.runs import Model

    model = Model.load(run, device)
    with warnings_as_sentences():
        rows = model.similar(item, k, layer=layer, measure=measure)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    names = model.run.vocabulary(layer_with_vectors(model.network, layer).field)
    say(f"Like: {names.titles(names.find(item)[:1])[0]}")
    print_lines(recommendations_table(rows))


@knn.command("search")
def search(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="The vectors to search: text (key, tab, numbers), .npy or .parquet."
        ),
    ],
    queries: Annotated[list[Path], typer.Option(help="A file of query vectors; may be given several times.")],
    k: Annotated[
        int, typer.Option("-k", "--k", help="Number of neighbours of each query, up to all.", min=1)
    ] = 10,
    measure: Annotated[
        _Measure,
        typer.Option(
            help="Measure of nearness: a large product, a large cosine or a small distance. dot: lengths of"
            " vectors in files may count."
        ),
    ] = "dot",
    stored: Annotated[
        Literal["float32", "bfloat16", "float16"],
        typer.Option(help="Precision in which vectors are stored; types of 2 bytes are rounded."),
    ] = "float32",
    device: Device = None,
    processes: Processes = None,
) -> None:
    """Print the nearest vectors of every query as JSON lines, nearest first.

    Each line is {"key": ..., "neighbours": [{"key": ..., "score": ...}]}.
    """
    from widenet.data.vectors import read_vectors
    from widenet.knn.neighbours import LARGEST_BLOCK, Neighbours

    run_in_processes(context, processes, device)
    query_vectors = read_vectors(queries)
    collection = Neighbours.of(read_vectors(files), measure=measure, stored=stored, device=device)
    blocks = collection.search_all(query_vectors, k, LARGEST_BLOCK)
    if not leads():
        deque(blocks, maxlen=0)
        return
    for keys, neighbours, scores in blocks:
        for key, own, own_scores in zip(keys, neighbours, scores.tolist(), strict=True):
            nearest = [{"key": name, "score": score} for name, score in zip(own, own_scores, strict=True)]
            typer.echo(json.dumps({"key": key, "neighbours": nearest}, ensure_ascii=False))


def quantize(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run in 8 bits of a trained one, for recommending on a CPU.

    It has about a quarter of the bytes. Every other command reads it as any run; it is not trained
    further.
    """
    from widenet.runs.quantizing import num_bytes
    from widenet.runs.quantizing import quantize as make
    from widenet.training.run_path import check_run

    check_run(run)
    fingerprint = make(run, out, overwrite).fingerprint()
    after, before = num_bytes(out), num_bytes(run)
    print_result(
        as_json,
        {"run": out, "num_bytes": after, "num_bytes_before": before, "fingerprint": fingerprint},
        f"{out}: {after:,} bytes of weights; {run} has {before:,}.",
        f"fingerprint {fingerprint}",
    )


def fingerprint(run: Run, as_json: AsJson = False) -> None:
    """Print a SHA-256 of the trained weights.

    Equal weights have equal fingerprints, whatever the files and the number of processes.
    """
    from widenet.training.run_path import check_run

    check_run(run)
    from widenet.runs import Model  # loads torch

    model = Model.load(run, "cpu")
    digest = model.fingerprint()
    facts = {"run": shown(run), "fingerprint": digest, "shards": model.run.training.shards}
    print_result(as_json, facts, digest)
