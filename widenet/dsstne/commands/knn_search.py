"""`widenet dsstne knn-search`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from widenet.cli.declared import Device
from widenet.cli.processes import Processes, run_in_processes

_SEVERAL = ("--data-files", "--input-files")


class SeveralFiles(TyperCommand):
    """Takes several files after one option, as DSSTNE does: --data-files a b c."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each file, as click expects it."""
        words: list[str] = []
        option = ""
        for word in args:
            if word.startswith("--"):
                option = word
            elif option in _SEVERAL and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


def knn_search(
    context: typer.Context,
    data_files: Annotated[
        list[Path], typer.Option(help="One or more files of vectors to search: key, tab, numbers.")
    ],
    input_files: Annotated[list[Path], typer.Option(help="One or more files of vectors to search for.")],
    output_file: Annotated[
        Path | None, typer.Option(help="File to write; standard output if not given.")
    ] = None,
    k: Annotated[int, typer.Option(help="Neighbours of each vector.", min=1)] = 100,
    batch_size: Annotated[int, typer.Option(help="Vectors to search for at a time.", min=1)] = 128,
    data_type: Annotated[
        Literal["fp32", "fp16"], typer.Option(help="Number type of the vectors to search, in memory.")
    ] = "fp32",
    key_val_delim: Annotated[
        str, typer.Option(help="Separator after a key. A tab if not given.", show_default=False)
    ] = "\t",
    vec_delim: Annotated[
        str, typer.Option(help="Separator between numbers. A space if not given.", show_default=False)
    ] = " ",
    id_score_sep: Annotated[str, typer.Option(help="Separator between a key and its score.")] = ":",
    score_precision: Annotated[int, typer.Option(help="Decimals of a score.", min=0)] = 3,
    output_keys_only: Annotated[bool, typer.Option("--output-keys-only", help="Write no scores.")] = False,
    report_interval: Annotated[int, typer.Option(help="Batches between reports of the speed.", min=1)] = 1000,
    device: Device = None,
    processes: Processes = None,
) -> None:
    """Find the nearest vectors by dot product: key, tab, key:score key:score ..., best first."""
    from time import perf_counter

    from widenet.cli.output import lines_to
    from widenet.data.vectors import read_vectors
    from widenet.knn.neighbours import Neighbours
    from widenet.parallel.group import is_leader

    run_in_processes(context, processes, device)
    queries = read_vectors(input_files, key_val_delim, vec_delim)
    searched = read_vectors(data_files, key_val_delim, vec_delim)
    collection = Neighbours.of(
        searched, stored="float16" if data_type == "fp16" else "float32", device=device
    )

    def neighbour(key: str, score: float) -> str:
        return key if output_keys_only else f"{key}{id_score_sep}{score:.{score_precision}f}"

    start = perf_counter()
    if not is_leader():
        for _ in collection.search_all(queries, k, batch_size):
            pass
        return
    with lines_to(output_file) as write:
        for number, (keys, neighbours, scores) in enumerate(
            collection.search_all(queries, k, batch_size), start=1
        ):
            for key, own, own_scores in zip(keys, neighbours, scores.tolist(), strict=True):
                nearest = vec_delim.join(neighbour(*each) for each in zip(own, own_scores, strict=True))
                write(f"{key}{key_val_delim}{nearest}\n")
            if number % report_interval == 0:
                rate = min(number * batch_size, len(queries)) / (perf_counter() - start)
                typer.echo(f"{number:,} batches; {rate:,.0f} queries a second.", err=True)
