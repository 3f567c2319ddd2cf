"""`widenet demo`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer


def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with interactions and titles, such as goodbooks-10k. Default: generated books."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder to work in. It replaces an earlier demonstration there.")
    ] = Path("runs/demo"),
) -> None:
    """Train a recommender, measure it, and show what it recommends, in under three minutes."""
    from widenet.cli.output import recommendations_table
    from widenet.cli.report import leave_report
    from widenet.demo import Demo
    from widenet.runs.progress import TrainingReport

    steps = Demo(data, out, typer.echo)
    dataset = steps.ingest()
    field = dataset.field("items")
    typer.echo(
        f"{dataset.num_examples:,} users, {field.width:,} items, {sum(field.num_entries.values()):,}"
        " interactions."
    )
    typer.echo("\nTraining: predict what was hidden from a user's history, over the whole catalogue.")
    report = TrainingReport()
    try:
        model = steps.train(dataset, report)
    finally:
        report.stop()
    typer.echo(f"\n{'On the held-out items':24}{'recall@20':>12}{'ndcg@20':>12}{'coverage@20':>14}")
    for name, metrics in steps.compare(model, dataset).items():
        typer.echo(
            f"{name:24}{metrics['recall@20']:>12.4f}{metrics['ndcg@20']:>12.4f}{metrics['coverage@20']:>14.4f}"
        )
    examples = steps.examples(model, dataset)
    for liked, recommended in examples:
        typer.echo(f"\nTo somebody who had, among others: {'; '.join(liked)}")
        typer.echo(recommendations_table(recommended))
    written = leave_report(model, dataset, quiet=False)
    if written is not None:
        typer.echo(f"\nThe same as a page, with curves: {written}")
    command = ["widenet", "recommend", str(out / "run"), "--items", *examples[0][0][:2]]
    typer.echo(f"Try your own, by titles: {shlex.join(command)}")
