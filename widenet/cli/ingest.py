"""`widenet data ingest`: makes a dataset from raw interactions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.dataset import show
from widenet.cli.declared import values_of, with_flags_of
from widenet.cli.json_output import AsJson
from widenet.cli.progress import IngestReport
from widenet.data.ingest_arguments import IngestArguments

_Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files of interactions, patterns of files, - for standard input, or NetCDF files of DSSTNE.",
    ),
]
_Out = Annotated[Path, typer.Option(help="The dataset directory to make.")]


@with_flags_of(IngestArguments)
def ingest(
    context: typer.Context, sources: _Sources, out: _Out, as_json: AsJson = False, **words: Any
) -> None:
    """Make a dataset directory from interactions, completely or not at all."""
    from widenet.data.ingest import ingest_with
    from widenet.data.options import Options
    from widenet.data.sources import matching_paths
    from widenet.extensions import dataset_formats
    from widenet.kernels.ahead import compile_usual
    from widenet.stores.uri import is_uri

    local = [source for source in sources if not is_uri(source)]
    paths = [path for source in local for path in matching_paths(Path(source))]
    form = next((form for form in dataset_formats() if any(form.owns(path) for path in paths)), None)
    if form is not None and len(local) == len(sources):
        show(out, form.ingest(paths, out, words["name"], context), as_json=as_json)
        return
    compile_usual()
    with IngestReport() as report:
        options = Options(**values_of(IngestArguments, words), on_progress=report.phase, on_rows=report.rows)
        manifest = ingest_with(sources, out, options)
    show(out, manifest, as_json=as_json)
