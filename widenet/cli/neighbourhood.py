"""`widenet neighbourhood`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widenet.cli.json_output import AsJson, print_json
from widenet.cli.options import Run

if TYPE_CHECKING:
    from widenet.runs.neighbourhood import Choice


def neighbourhood(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    users: Annotated[int, typer.Option(min=1, help="Number of users to choose by, drawn at random.")] = 4096,
    metric: Annotated[str, typer.Option(help="The metric to choose by, a mean over users.")] = "ndcg@20",
    output: Annotated[str | None, typer.Option(help="Name of the output, if there are several.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run of a trained one with the neighbourhood term that is best on its validation part.

    The weights stay. Every other command reads the new run as any other.
    """
    from widenet.runs.neighbourhood import fit_neighbourhood
    from widenet.training.existing_run import check_run

    check_run(run)
    tried: list[Choice] = []

    def report(choice: "Choice") -> None:
        tried.append(choice)
        typer.echo(f"{metric} {choice.mean:.4f}  {_words(choice)}", err=as_json)

    model = fit_neighbourhood(run, out, users, metric, output, overwrite, report)
    without, best = tried[0], max(tried, key=lambda choice: choice.mean)
    gain, lower, upper = best.gain_over(without)
    if as_json:
        print_json(
            {
                "run": out,
                "neighbourhood": None if best.term is None else best.term.model_dump(mode="json"),
                "metric": metric,
                "value": best.mean,
                "without": without.mean,
                "interval": [lower, upper],
                "num_users": len(best.values_E),
                "fingerprint": model.fingerprint(),
            }
        )
        return
    typer.echo(f"{out}: {_words(best)}.")
    typer.echo(
        f"{metric} of {len(best.values_E):,} users of the validation part: {best.mean:.4f},"
        f" {gain:+.4f} from no term (95 %: {lower:+.4f} to {upper:+.4f})."
    )
    typer.echo(f"fingerprint {model.fingerprint()}")


def _words(choice: "Choice") -> str:
    term = choice.term
    if term is None:
        return "no term"
    return (
        f"weight {term.weight:g}, floor {term.floor:g}, {term.neighbours} neighbours,"
        f" popularity {term.popularity:g}"
    )
