"""Commands that make a run of a trained one: quantize, neighbourhood."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widenet.cli.declared import Run
from widenet.cli.output import AsJson, print_json, print_result
from widenet.cli.processes import speaks
from widenet.runs.run_arguments import CHOOSING_METRIC, CHOOSING_USERS

if TYPE_CHECKING:
    from widenet.runs.made_of import Choice, Found
    from widenet.runs.model import Model


def quantize(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run in 8 bits of a trained one, for recommending on a CPU.

    It has about a quarter of the bytes. Every other command reads it as any run; it is not trained
    further.
    """
    from widenet.runs.made_of import num_bytes
    from widenet.runs.made_of import quantize as make
    from widenet.training.run_path import check_run

    check_run(run)
    fingerprint = make(run, out, overwrite).fingerprint()
    after, before = num_bytes(out), num_bytes(run)
    print_result(
        as_json,
        {"run": out, "num_bytes": after, "num_bytes_before": before, "fingerprint": fingerprint},
        f"{out}: {after:,} bytes of weights; {run} has {before:,}.",
        f"fingerprint {fingerprint}",
    )


def neighbourhood(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The dataset that the run was trained on. Default: where it was then."),
    ] = None,
    users: Annotated[
        int, typer.Option(min=1, help="Number of users to choose by, drawn at random; as many others judge.")
    ] = CHOOSING_USERS,
    metric: Annotated[
        str, typer.Option(help="The metric to choose by, a mean over users.")
    ] = CHOOSING_METRIC,
    output: Annotated[str | None, typer.Option(help="Name of the output, if there are several.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run of a trained one with the neighbourhood term that is best on its validation part.

    The weights stay. Every other command reads the new run as any other.
    """
    from widenet.runs.made_of import fitted_neighbourhood
    from widenet.training.run_path import check_run

    def report(choice: "Choice") -> None:
        if speaks():
            typer.echo(f"{metric} {choice}", err=as_json)

    check_run(run)
    model, found = fitted_neighbourhood(run, out, data, users, metric, output, overwrite, report)
    if speaks():
        _print(model, found, run, out, metric, as_json)


def _print(model: "Model", found: "Found", run: Path, out: Path, metric: str, as_json: bool) -> None:
    """Print what was found, and what users say of it who did not choose it."""
    from widenet.runs.made_of import words_of

    before, best = found.before, found.best
    gain, lower, upper = best.gain_over(before)
    if as_json:
        print_json(
            {
                "run": out,
                "neighbourhood": None
                if found.term is None
                else found.term.model_dump(mode="json", exclude={"fit"}),
                "metric": metric,
                "before": before.mean,
                "best": best.mean,
                "interval": [lower, upper],
                "num_users": len(best.values_E),
                "fingerprint": model.fingerprint(),
            }
        )
        return
    typer.echo(
        f"Best: {words_of(best.term)}. For {len(best.values_E):,} other users {metric} {best.mean:.4f},"
        f" {gain:+.4f} from {run} (95 %: {lower:+.4f} to {upper:+.4f})."
    )
    kept = "" if found.term == best.term else f", as {run}, because the gain is not surely 1 %"
    typer.echo(f"{out}: {words_of(found.term)}{kept}.")
    typer.echo(f"fingerprint {model.fingerprint()}")
