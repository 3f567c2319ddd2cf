"""`widenet dsstne predict`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.output import say
from widenet.cli.processes import Processes, run_in_processes
from widenet.errors import OptionError


def predict(
    context: typer.Context,
    data_set: Annotated[str, typer.Option("-d", help="Name of the data set, to which _input is added.")],
    model: Annotated[Path, typer.Option("-n", help="NetCDF file of the trained network.")],
    features_in: Annotated[Path, typer.Option("-i", help="Index file of the input's features.")],
    features_out: Annotated[Path, typer.Option("-o", help="Index file of the output's features.")],
    rows: Annotated[
        Path, typer.Option("-r", help="Samples as text, `name<TAB>feature:feature`; values are ignored.")
    ],
    filters: Annotated[
        Path,
        typer.Option(
            "-f", help="Features to leave out, as text; a value between 0 and 1 multiplies the score instead."
        ),
    ],
    out: Annotated[Path, typer.Option("-s", help="The file to write.")],
    k: Annotated[int, typer.Option("-k", help="Features for each sample, up to all.", min=1)] = 100,
    batch_size: Annotated[int, typer.Option("-b", help="Samples in a batch.", min=1)] = 1024,
    precision: Annotated[
        str, typer.Option("-p", help="Format of scores: a printf format without the %.")
    ] = "4.3f",
    layer: Annotated[
        str | None, typer.Option("-l", help="Write the values of all units of this layer instead.")
    ] = None,
    processes: Processes = None,
) -> None:
    """Write the best features for every sample, with the flags of DSSTNE's command of the same name."""
    from widenet.dsstne.predict import predict as run
    from widenet.parallel.group import is_leader

    if not re.fullmatch(r"[0-9]{0,3}(\.[0-9]{1,3})?[efg]", precision):
        raise OptionError(
            f'-p must be a width, a point and digits, and one of e, f, g, such as 4.3f; got "{precision}".'
        )
    run_in_processes(context, processes, None)
    count = run(
        model,
        data_set,
        (features_in, features_out),
        rows,
        filters,
        out,
        k=k,
        batch_size=batch_size,
        score_format=precision,
        layer=layer,
        say=say,
    )
    if is_leader():
        typer.echo(f"{out}: {count:,} samples.", err=True)
