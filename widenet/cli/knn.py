"""`widenet knn`: nearest neighbours among the items of a run, or among vectors in files."""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from widenet.cli.declared import Device, Run
from widenet.cli.output import AsJson, print_json
from widenet.cli.processes import Processes, run_in_processes

app = typer.Typer(
    help="Find the nearest of many vectors exactly, or write an approximate index.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Layer = Annotated[
    str | None,
    typer.Option(help="The sparse input or the output whose units to compare. Default: the only output."),
]


_Measure = Literal["dot", "cosine", "l2"]


_LINE = re.compile(rb'\{"key": ("(?:[^"\\]|\\.)*"|-?[0-9]+), "neighbours": \[')
"""How a file of neighbours begins."""
_MOST_BYTES = 2**20
"""Bytes within which the first key ends."""

By = Annotated[
    _Measure, typer.Option(help="Measure of nearness: a large product, a large cosine or a small distance.")
]


@app.command("like")
def like(
    run: Run,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An id, a title or part of a title.")],
    layer: Layer = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Number of items.", min=1)] = 10,
    measure: By = "cosine",
    as_json: AsJson = False,
    device: Device = None,
) -> None:
    """Show the items that are most similar to one in a run: widenet knn like RUN "The Hobbit"."""
    from dataclasses import asdict

    from widenet.cli.model import warnings_as_sentences
    from widenet.cli.output import recommendations_table
    from widenet.knn.neighbours import layer_with_vectors
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    model = Model.load(run, device)
    with warnings_as_sentences():
        rows = model.similar(item, k, layer=layer, measure=measure)
    if not is_leader():
        return
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    names = model.run.vocabulary(layer_with_vectors(model.network, layer).field)
    typer.echo(f"Like: {names.titles(names.find(item)[:1])[0]}", err=True)
    typer.echo(recommendations_table(rows))


@app.command("search")
def search(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="The vectors to search: text (key, tab, numbers), .npy or .parquet."
        ),
    ],
    queries: Annotated[list[Path], typer.Option(help="A file of query vectors; may be given several times.")],
    out: Annotated[
        Path | None, typer.Option(help="The file of JSON lines to write. Default: standard output.")
    ] = None,
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier file of neighbours.")
    ] = False,
    device: Device = None,
    processes: Processes = None,
) -> None:
    """Write the nearest vectors of every query as JSON lines, nearest first.

    Each line is {"key": ..., "neighbours": [{"key": ..., "score": ...}]}.
    """
    from widenet.cli.output import lines_to
    from widenet.data.vectors import read_vectors
    from widenet.knn.neighbours import LARGEST_BLOCK, Neighbours
    from widenet.parallel.group import is_leader
    from widenet.regular_files import check_new

    if out is not None and out.is_file():
        check_new(out, overwrite, "a file of neighbours", _is_of_neighbours)
    run_in_processes(context, processes, device)
    query_vectors = read_vectors(queries)
    collection = Neighbours.of(read_vectors(files), measure=measure, stored=stored, device=device)
    if not is_leader():
        for _ in collection.search_all(query_vectors, k, LARGEST_BLOCK):
            pass
        return
    with lines_to(out) as write:
        for keys, neighbours, scores in collection.search_all(query_vectors, k, LARGEST_BLOCK):
            for key, own, own_scores in zip(keys, neighbours, scores.tolist(), strict=True):
                nearest = [{"key": name, "score": score} for name, score in zip(own, own_scores, strict=True)]
                write(json.dumps({"key": key, "neighbours": nearest}, ensure_ascii=False) + "\n")


def _is_of_neighbours(path: Path) -> bool:
    with path.open("rb") as file:
        beginning = file.read(_MOST_BYTES)
    return not beginning or _LINE.match(beginning) is not None
