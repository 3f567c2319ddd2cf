"""`widenet data ingest`: raw interactions, whatever they are written in."""

from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.dataset import show
from widenet.cli.declared import flags_of, values_of
from widenet.cli.progress import IngestReport
from widenet.data.ingest_arguments import IngestArguments


def ingest(context: typer.Context, sources: list[str], out: Path, **words: Any) -> None:
    """Turn interactions into a dataset directory, whole or not at all."""
    from widenet.data.ingest import ingest_with
    from widenet.data.options import Options
    from widenet.data.sources import meant
    from widenet.extensions import dataset_formats

    paths = [path for source in sources for path in meant(Path(source))]
    form = next((form for form in dataset_formats() if any(form.owns(path) for path in paths)), None)
    if form is not None:
        show(out, form.ingest(paths, out, words["name"], context))
        return
    with IngestReport() as report:
        options = Options(**values_of(IngestArguments, words), on_progress=report.phase, on_rows=report.rows)
        manifest = ingest_with(sources, out, options)
    show(out, manifest)


_SOURCES = typer.Argument(
    metavar="SOURCE",
    help="Files of interactions, patterns of such, - for standard input, or NetCDF files of DSSTNE.",
)
_PARAMETERS = [
    Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
    Parameter("sources", Parameter.KEYWORD_ONLY, annotation=Annotated[list[str], _SOURCES]),
    Parameter(
        "out",
        Parameter.KEYWORD_ONLY,
        annotation=Annotated[Path, typer.Option(help="The dataset directory to make.")],
    ),
    *flags_of(IngestArguments),
]
ingest.__annotations__ |= {each.name: each.annotation for each in _PARAMETERS}
ingest.__signature__ = Signature(_PARAMETERS)  # type: ignore[attr-defined]
