"""`widenet dsstne train`."""

from pathlib import Path
from typing import Annotated, Any

import typer


class Report:
    """Tells of a training in DSSTNE's words."""

    def start(self, state: Any, epochs: int, examples_per_epoch: int) -> None:
        """Nothing."""

    def advance(self, num_examples: int, loss: float) -> None:
        """Nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """A line an epoch; what weights cost is in no loss of this project, and so not in the line."""
        figures = f"average training error {record['loss']:f}, elapsed time {record['seconds']:f}s"
        typer.echo(f"NNNetwork::Train: Epoch {record['epoch']}, {figures}")

    def say(self, text: str) -> None:
        """Something happened."""
        typer.echo(text, err=True)


def train(
    config: Annotated[Path, typer.Option("-c", help="DSSTNE's network document.")],
    inputs: Annotated[Path, typer.Option("-i", help="NetCDF file of the input data sets.")],
    outputs: Annotated[Path, typer.Option("-o", help="NetCDF file of the output data sets.")],
    model: Annotated[Path, typer.Option("-n", help="The trained network to write, a new file; the run stays beside it in FILE.run.")],
    data_set: Annotated[str | None, typer.Option("-d", help="Without effect, as in DSSTNE.")] = None,
    batch_size: Annotated[int, typer.Option("-b", help="Examples in a batch.")] = 1024,
    epochs: Annotated[int, typer.Option("-e", help="Passes over the examples.")] = 40,
    alpha: Annotated[float, typer.Option("-alpha", help="Learning rate.")] = 0.025,
    l2: Annotated[float, typer.Option("-lambda", help="Weight of half the squared weights.")] = 0.0001,
    l1: Annotated[float, typer.Option("-lambda1", help="Weight of the weights' magnitudes.")] = 0.0,
    mu: Annotated[float | None, typer.Option("-mu", help="Without effect on plain gradient descent, as in DSSTNE.")] = None,
    mu1: Annotated[float | None, typer.Option("-mu1", help="Without effect on plain gradient descent, as in DSSTNE.")] = None,
) -> None:
    """Train a network as DSSTNE's command of that name does, with the same flags. Given again it goes on with what was cut short."""
    from widenet.interop.dsstne.train import train as run

    for flag, value in (("-d", data_set), ("-mu", mu), ("-mu1", mu1)):
        if value is not None:
            typer.echo(f"{flag} has no effect, in DSSTNE as here.", err=True)
    optimizer = {"kind": "sgd", "learning_rate": alpha}
    settings = {"batch_size": batch_size, "epochs": epochs, "optimizer": optimizer, "l2": l2, "l1": l1}
    run(config, [inputs, outputs], model, settings, Report())
    typer.echo(f"{model}: trained. {model}.run holds the run, for widenet evaluate, predict and recommend.", err=True)
