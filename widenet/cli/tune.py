"""`widenet tune`."""

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from widenet.cli.declared import with_flags_of
from widenet.cli.output import AsJson, print_json, say
from widenet.cli.train import next_command, resume_command
from widenet.stores.uri import shown
from widenet.tuning.results import StudyReport, TrialResult
from widenet.tuning.tune_arguments import TuneArguments


class StudyProgress(StudyReport):
    """Prints a line for each trial that has ended.

    Args:
        quiet: Whether to print nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def end(self, trial: TrialResult) -> None:
        """Print the epochs of a trial and its metric, or why it has failed."""
        value = trial.problem or f"epochs {trial.epochs:>3}  {trial.value:.4f}"
        self.say(f"trial {trial.number:>3}  {trial.state:8}  {value}")

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self.quiet:
            say(text)


@with_flags_of(TuneArguments)
def tune(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: AsJson = False,
    **words: Any,
) -> None:
    """Search for the documents with the best validation metric.

    A trial that is not among the best at a rung stops there; the others train to the end. Ctrl-C or SIGTERM
    saves a checkpoint of every trial that trains; --resume continues the study, or joins it from another
    machine.
    """
    from widenet.tuning.tune import tune as search

    report = StudyProgress(quiet)
    try:
        result = search(**words, report=report)
    except KeyboardInterrupt:
        if (words["out"] / "study.json").is_file():
            options = {f"--{name}": words[name] for name in words if name not in ("space", "resume")}
            say("Stopped. Resume with:")
            say(f"  {resume_command('tune', [words['space']], options)}")
        sys.exit(130)
    if as_json:
        print_json(asdict(result))
        return
    best = result.best
    assert best is not None, "a study without a best trial raises an error"
    if not quiet:
        typer.echo(
            f"{result.path}: {len(result.trials):,} trials in {result.total_epochs:,} epochs,"
            f" {result.share_of_epochs:.1%} of training each to the end."
        )
        typer.echo(
            f"Best: trial {best.number}, {result.metric} {best.value:.4f}. Fingerprint {best.fingerprint}"
        )
        for place, value in best.choices.items():
            typer.echo(f"  {place}: {json.dumps(value)}")
        typer.echo(f"Documents: {result.path / 'best'}. Report: {result.path / 'report.html'}", err=True)
        from widenet.training.run_directory import RunDirectory

        network = RunDirectory.open(best.run).network
        typer.echo(next_command(str(best.run), shown(words["data"]), network), err=True)
