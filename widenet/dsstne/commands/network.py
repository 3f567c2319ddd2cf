"""DSSTNE's networks from the command line: documents, trainings, predictions and trained networks."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.declared import Run
from widenet.cli.output import lines_to, say
from widenet.cli.processes import Processes, run_in_processes
from widenet.errors import OptionError
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
    del data_set, mu, mu1  # DSSTNE's command takes them, too, and does nothing with them
    optimizer = {"kind": "sgd", "learning_rate": alpha}
    settings = {"batch_size": batch_size, "epochs": epochs, "optimizer": optimizer, "l2": l2, "l1": l1}
    run(config, [inputs, outputs], model, settings, Report(), initial=Path("initial_network.nc"))
    if is_leader():
        typer.echo(f"{model}: trained.", err=True)


def encoder(
    command: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The command file: Network, Data, Command, TrainingParameters."),
    ],
) -> None:
    """Run a DSSTNE command file: Train, Predict or Validate.

    Predict prints k, precision, recall and NDCG of a trained network for k from 1 to 10. Validate checks the
    gradient of every weight against finite differences, and exits with status 2 if one is wrong.
    """
    from widenet.dsstne.encoder import encoder as run

    for line in run(command, Report()):
        typer.echo(line)


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
            "-p must be a width, a point and digits, and one of e, f, g, such as 4.3f", value=precision
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


def translate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="DSSTNE's network document.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The network.json to write; an earlier one is replaced. Printed if not given."),
    ] = None,
) -> None:
    """Translate a DSSTNE network document to a network.json, and print its settings for training.json.

    The settings go to standard error. A document has no weights: use `widenet import` for networks that
    DSSTNE trained.
    """
    from widenet.dsstne.spec.network import is_dsstne, translation
    from widenet.errors import DocumentError
    from widenet.spec.network import NetworkSpec

    values = NetworkSpec.read_values(config)
    if not is_dsstne(values):
        raise DocumentError('must be a DSSTNE network: at least one layer needs a "DataSet"', place=config)
    translated = translation(values, str(config))
    document = NetworkSpec.of(translated.network, f"{config}, translated")
    text = json.dumps(translated.network, indent=2, ensure_ascii=False)
    for note in translated.notes:
        typer.echo(note, err=True)
    typer.echo(f"For training.json: {json.dumps(translated.training)}", err=True)
    if out is None:
        typer.echo(text)
        return
    with lines_to(out) as write:
        write(text + "\n")
    typer.echo(f"{out}: {len(document.layers)} layers.")


def export_model(
    source: Run,
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="The NetCDF file to write; an earlier one is replaced.")
    ],
) -> None:
    """Write a run as a trained network for DSSTNE; `widenet import` reads such networks."""
    from widenet.dsstne.model_export import export_model as run

    run(source, out)
    typer.echo(f"{out}: written.")
