"""`widenet dsstne`: DSSTNE's commands with their own flags, and commands for its files."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from widenet.cli.declared import Device, IndexFiles, Run, SeveralWords, index_files
from widenet.cli.output import lines_to, say
from widenet.cli.processes import Processes, run_in_processes
from widenet.errors import OptionError
from widenet.training.state import Silence

app = typer.Typer(
    help="Amazon DSSTNE's commands, with its flags, and its files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("generateNetCDF")
def generate(
    name: Annotated[str, typer.Option("-d", help="Name of the data set.")],
    source: Annotated[
        Path,
        typer.Option(
            "-i", help="Text, `sample<TAB>feature,value:feature,value` a line; a file, or a folder of files."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", help="The NetCDF file to write; an earlier one is replaced.")],
    features: Annotated[Path, typer.Option("-f", help="Index file of the features.")],
    samples: Annotated[Path, typer.Option("-s", help="Index file of the samples; created or extended.")],
    create: Annotated[bool, typer.Option("-c", help="Create a new index of features.")] = False,
    merge: Annotated[
        bool,
        typer.Option("-m", help="Add features that the index lacks; without -c and -m they are dropped."),
    ] = False,
    kind: Annotated[
        Literal["indicator", "analog"],
        typer.Option("-t", help="indicator: features without values; analog: features with values."),
    ] = "indicator",
) -> None:
    """Make NetCDF data from text, with the flags of DSSTNE's command of the same name."""
    from widenet.dsstne.text import generate as run

    if create and merge:
        raise OptionError("-c and -m cannot go together: a new index of features has nothing to add to")
    new_features: Literal["drop", "create", "merge"] = "create" if create else "merge" if merge else "drop"
    run(
        name,
        source,
        out,
        features,
        samples,
        new_features=new_features,
        analog=kind == "analog",
        say=say,
    )


@app.command("import-data")
def import_data(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="NetCDF files; each data set in them becomes a field."),
    ],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    features: IndexFiles = None,
    samples: Annotated[Path | None, typer.Option(help="Index file that names the examples.")] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Data set that an output predicts; its dense 8-bit numbers become v/256 or v/128."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset; that of the first file if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier dataset.")] = False,
) -> None:
    """Turn DSSTNE's NetCDF data into a dataset directory, whole or not at all."""
    from widenet.cli.data import show
    from widenet.dsstne.data import import_data as run

    named = index_files(features or [])
    made = run(
        sources,
        out,
        features=named,
        samples=samples,
        targets=targets or [],
        name=name,
        overwrite=overwrite,
        on_progress=_echo,
    )
    show(out, made)


def _echo(phase: str) -> None:
    typer.echo(f"{phase} ...", err=True)


@app.command("knn-search", cls=SeveralWords)
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


@app.command("train")
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

    Every ten epochs the network is written to FILE10.nc, FILE20.nc and so on.
    """
    from widenet.dsstne.train import train as run
    from widenet.parallel.group import is_leader

    run_in_processes(context, processes, None)
    del data_set, mu, mu1  # DSSTNE's command takes them, too, and does nothing with them
    optimizer = {"kind": "sgd", "learning_rate": alpha}
    settings = {"batch_size": batch_size, "epochs": epochs, "optimizer": optimizer, "l2": l2, "l1": l1}
    run(config, [inputs, outputs], model, settings, Report())
    if is_leader():
        typer.echo(f"{model}: trained.", err=True)


@app.command("encoder")
def encoder(
    command: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The command file: Network, Data, Command, TrainingParameters."),
    ],
) -> None:
    """Run a DSSTNE command file: Train or Predict.

    Predict prints k, precision, recall and NDCG of a trained network for k from 1 to 10.
    """
    from widenet.dsstne.encoder import encoder as run

    for line in run(command, Report()):
        typer.echo(line)


@app.command("predict")
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


@app.command("translate")
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


@app.command("export-model")
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
