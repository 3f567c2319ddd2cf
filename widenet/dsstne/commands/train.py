"""`widenet dsstne train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.output import say
from widenet.cli.processes import Processes, run_in_processes
from widenet.training.state import Silence


class Report(Silence):
    """Prints the progress of a training in DSSTNE's format."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Print a line for an epoch."""
        error, weights = record["loss"], record.get("regularization", 0.0)
        figures = (
            f"average error {error + weights:f}, average training error {error:f}, average regularization"
            f" error {weights:f}"
        )
        typer.echo(
            f"NNNetwork::Train: Epoch {record['epoch']}, {figures}, elapsed time {record['seconds']:f}s"
        )

    def say(self, text: str) -> None:
        """Print a sentence."""
        say(text)


def train(
    context: typer.Context,
    config: Annotated[Path, typer.Option("-c", help="DSSTNE's network document.")],
    inputs: Annotated[Path, typer.Option("-i", help="NetCDF file of the input data sets.")],
    outputs: Annotated[Path, typer.Option("-o", help="NetCDF file of the output data sets.")],
    model: Annotated[
        Path,
        typer.Option(
            "-n", help="The trained network to write, a new file; the run stays beside it in FILE.run."
        ),
    ],
    data_set: Annotated[str | None, typer.Option("-d", help="No effect, as in DSSTNE.")] = None,
    batch_size: Annotated[int, typer.Option("-b", help="Examples in a batch.")] = 1024,
    epochs: Annotated[int, typer.Option("-e", help="Passes over the examples.")] = 40,
    alpha: Annotated[float, typer.Option("-alpha", help="Learning rate.")] = 0.025,
    l2: Annotated[float, typer.Option("-lambda", help="Weight of half the squared weights.")] = 0.0001,
    l1: Annotated[float, typer.Option("-lambda1", help="Weight of the weights' magnitudes.")] = 0.0,
    mu: Annotated[
        float | None, typer.Option("-mu", help="No effect on plain gradient descent, as in DSSTNE.")
    ] = None,
    mu1: Annotated[
        float | None, typer.Option("-mu1", help="No effect on plain gradient descent, as in DSSTNE.")
    ] = None,
    processes: Processes = None,
) -> None:
    """Train a network with the flags of DSSTNE's command of the same name.

    Run the command again to resume an interrupted training.

    The untrained network is written to initial_network.nc. Every ten epochs the network is written to
    FILE10.nc, FILE20.nc and so on.
    """
    from widenet.dsstne.train import train as run
    from widenet.parallel.group import is_leader

    run_in_processes(context, processes, None)
    for flag, value in (("-d", data_set), ("-mu", mu), ("-mu1", mu1)):
        if value is not None and is_leader():
            typer.echo(f"{flag} has no effect, as in DSSTNE.", err=True)
    optimizer = {"kind": "sgd", "learning_rate": alpha}
    settings = {"batch_size": batch_size, "epochs": epochs, "optimizer": optimizer, "l2": l2, "l1": l1}
    run(config, [inputs, outputs], model, settings, Report(), initial=Path("initial_network.nc"))
    if is_leader():
        typer.echo(
            f"{model}: trained. {model}.run holds the run, for widenet evaluate, predict and recommend.",
            err=True,
        )
