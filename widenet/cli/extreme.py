"""`widenet data extreme`: makes datasets from files of extreme classification."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.dataset import show, summary
from widenet.cli.json_output import AsJson, print_json


def extreme(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="The file of training points.")],
    out: Annotated[Path, typer.Option(help="The dataset directory to make from them.")],
    test: Annotated[Path | None, typer.Option(help="The file of test points.")] = None,
    test_out: Annotated[
        Path | None, typer.Option(help="The dataset directory to make from the test points.")
    ] = None,
    filter_pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of pairs of a test point and a label that evaluations leave out.",
        ),
    ] = None,
    labels: Annotated[str, typer.Option(help="Name of the field of labels.")] = "labels",
    features: Annotated[str, typer.Option(help="Name of the field of features.")] = "features",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace earlier datasets, both once the new ones are whole.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make datasets from the sparse text of the Extreme Classification Repository."""
    from widenet.data.extreme import ingest_extreme

    made = ingest_extreme(
        train,
        out,
        test=test,
        test_out=test_out,
        filter_pairs=filter_pairs,
        labels=labels,
        features=features,
        overwrite=overwrite,
    )
    datasets = [dataset for dataset in made if dataset is not None]
    if as_json:
        print_json([summary(dataset.path, dataset.manifest) for dataset in datasets])
        return
    for dataset in datasets:
        show(dataset.path, dataset.manifest, made=False)
