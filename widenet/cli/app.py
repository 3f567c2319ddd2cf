"""The command line: its commands, and how it reports errors."""

import os
import re
import signal
import sys
import threading
import traceback
from functools import cached_property
from importlib.metadata import EntryPoint
from types import FrameType
from typing import Annotated, Any

import typer

from widenet.cli.missing_data import suggested_data
from widenet.cli.places import refuse_uris
from widenet.cli.processes import left_to_the_first, speaks
from widenet.cli.wording import in_one_line, on_command_line
from widenet.errors import (
    NO_ROOM,
    OptionError,
    WidenetError,
    alike,
    did_you_mean,
    is_out_of_memory,
    unwritten,
)
from widenet.extensions import COMMANDS, Command, extensions, load

_COMMANDS = {
    "demo": Command("Train a recommender and show what it recommends", "widenet.cli.demo:demo"),
    "data": Command("Make datasets from files, split and describe them", "widenet.cli.data:app"),
    "schema": Command("Print the JSON Schema of a document", "widenet.cli.schema:schema"),
    "plan": Command("Tell what a training needs before it starts", "widenet.cli.plan:plan"),
    "train": Command("Train a network, or resume a training", "widenet.cli.train:train"),
    "tune": Command("Search for the best documents", "widenet.cli.tune:tune"),
    "evaluate": Command("Measure a run: recall, NDCG and other metrics", "widenet.cli.model:evaluate"),
    "compare": Command("Compare two runs user by user", "widenet.cli.compare:compare"),
    "recommend": Command("Recommend items to one person", "widenet.cli.recommend:recommend"),
    "predict": Command("Write recommendations for every user", "widenet.cli.model:predict"),
    "serve": Command("Answer requests over HTTP", "widenet.cli.serve:serve"),
    "ui": Command("Show runs in a browser, also while they train", "widenet.cli.ui:ui"),
    "report": Command("Write an HTML page about a run, or compare several", "widenet.cli.report:report"),
    "runs": Command("List runs: state, metric, and how their documents differ", "widenet.cli.runs:runs"),
    "knn": Command("Find nearest neighbours among items or vectors", "widenet.cli.knn:app"),
    "neighbourhood": Command(
        "Give a trained run the best neighbourhood term", "widenet.cli.neighbourhood:neighbourhood"
    ),
    "quantize": Command("Make a smaller run in 8 bits of a trained one", "widenet.cli.quantize:quantize"),
    "fingerprint": Command("Print a SHA-256 of a run's weights", "widenet.cli.model:fingerprint"),
    "export": Command("Write a trained network for other programs", "widenet.cli.interchange:export"),
    "import": Command(
        "Make a run of another program's trained network", "widenet.cli.interchange:import_network"
    ),
}
"""The commands in the order of work; those of extensions come after them."""


class _Commands(typer.core.TyperGroup):
    """Commands in the order of work, then those of extensions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        known: dict[str, Command | EntryPoint] = {**_COMMANDS, **extensions(COMMANDS), **_COMMANDS}
        self.commands = {name: _Late(name, command) for name, command in known.items()}


class _Late(typer.core.TyperCommand):
    """A command that is imported when it is called, so that a damaged extension stops no other command."""

    def __init__(self, name: str, command: Command | EntryPoint) -> None:
        super().__init__(name, add_help_option=False)
        self.command = command

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the line for the list of commands."""
        del limit
        try:
            return self._loaded().summary
        except OptionError:
            return "(its distribution is damaged: call it to see the error)"

    @cached_property
    def whole(self) -> Any:
        """The command itself."""
        point = EntryPoint(self.name or "", self._loaded().app, COMMANDS)
        target = load(point) if isinstance(self.command, EntryPoint) else point.load()
        if isinstance(target, typer.Typer):
            whole: Any = typer.main.get_group(target)
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(self.name)(target)
            whole = typer.main.get_command(app)
        whole.name = self.name
        refuse_uris(whole, self.name or "")
        return whole

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Pass the rest of the command line to the command itself."""
        return self.whole.make_context(info_name, args, parent, **extra)

    def _loaded(self) -> Command:
        command = load(self.command) if isinstance(self.command, EntryPoint) else self.command
        if not isinstance(command, Command):
            raise OptionError(
                f'the extension "{self.name}" of {COMMANDS} must be a Command; got'
                f" {type(command).__name__}. Install another version of its distribution, or remove it."
            )
        return command


app = typer.Typer(
    name="widenet",
    cls=_Commands,
    help="Networks with sparse and very wide inputs and outputs: from raw interactions to recommendations.",
    epilog=("To begin, call widenet demo. widenet COMMAND --help says more."),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERRUPTED = 130
_RULES = {
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
}
"""Rule that a value breaks, by pydantic's type of error."""
_ELSEWHERE = {
    "explain": "widenet recommend RUN --items ITEM --explain",
    "fit": "widenet train --data DATA --out RUN",
    "similar": "widenet knn like RUN ITEM",
}
"""The command line for what Python has under another name."""
_OUTPUT = "standard output"
_MUCH_ALIKE = 0.85
"""Least similarity of a misspelt name to one of those, see `errors.alike`."""
_NO_COMMAND = re.compile("No such command '([^']*)'")
_CHOICE = re.compile("'([^']*)' is not one of (.+)")
_USAGE_ERROR: Any = typer.BadParameter.__base__
"""The base class of typer's errors of usage, which typer does not export."""


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"widenet {version('widenet')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    if debug:
        os.environ["WIDENET_DEBUG"] = "1"


def _run(arguments: list[str] | None) -> Any:
    """Run a command; returns its exit status, or None."""
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, interrupt)
    try:
        return app(arguments, prog_name="widenet", obj=arguments, standalone_mode=False)
    except Exception:
        if interrupted.is_set():  # some libraries raise an error of their own instead
            return _INTERRUPTED
        raise


def main(arguments: list[str] | None = None) -> Any:
    """Run a command line.

    The process exits with status 0, 2 after a user's mistake, 3 if another process was lost, and 130 after
    Ctrl-C or SIGTERM. No half-written file is left behind.
    """
    try:
        status = _run(arguments)
    except WidenetError as error:
        _trace()
        if error.status != 2 or not left_to_the_first():
            typer.echo(f"widenet: {in_one_line(on_command_line(str(error)))}", err=True)
        sys.exit(error.status)
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _trace()
        typer.echo(
            'widenet: there is not enough memory. Lower "units", "batch_size" or -k, or use more'
            " --processes.",
            err=True,
        )
        sys.exit(2)
    except OSError as error:
        _trace()
        place = _place(error)
        said = f"{place}: {error.strerror or error}. Check the path and the disk."
        typer.echo(f"widenet: {unwritten(place, error) if error.errno in NO_ROOM else said}", err=True)
        if place == _OUTPUT:
            _drop_output()
        sys.exit(2)
    except _USAGE_ERROR as error:
        if not left_to_the_first():
            _show_usage(error, sys.argv[1:] if arguments is None else arguments)
        sys.exit(2)
    if status == _INTERRUPTED and speaks():
        typer.echo("widenet: interrupted.", err=True)
    sys.exit(status)


def _drop_output() -> None:
    """Let nothing more reach standard output, not even what waits there: Python would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _place(error: OSError) -> str:
    """The file that an error of the operating system is about, or standard output."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(error.filename or (_OUTPUT if frame.f_code is typer.echo.__code__ else "a file"))


def _trace() -> None:
    """With --debug, print the traceback of the current error."""
    if os.environ.get("WIDENET_DEBUG"):
        traceback.print_exc()


def _show_usage(error: Any, words: list[str]) -> None:
    """Print what is wrong with the words of a command line in one sentence, or the help if there are none."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    command = error.ctx.command_path if error.ctx is not None else _command_of(words)
    problem = " ".join((_of_value(error) or error.format_message().replace("Value error, ", "")).split())
    problem = problem if problem.endswith((".", "?")) else f"{problem}."
    if (choice := _CHOICE.search(problem)) is not None:
        near = did_you_mean(choice[1], re.findall("'([^']+)'", choice[2]))
        problem += near if near.startswith(" Did") else ""
    if (unknown := _NO_COMMAND.match(problem)) is not None and command == "widenet":
        problem = f"No such command '{unknown[1]}'.{_instead_of(unknown[1]) or problem[unknown.end() + 1 :]}"
    if problem.startswith("Missing option '--data'"):
        problem += suggested_data(words)
    typer.echo(f"{command}: {problem} See `{command} --help`.", err=True)


def _instead_of(name: str) -> str:
    """Suggest another command line than the nearest command: a sentence or nothing.

    A group can have a command of this name, such as `widenet data describe`. Or Python has a function of
    this name, or of one much like it.
    """
    groups = [group for group, command in _COMMANDS.items() if command.app.endswith(":app")]
    named = [group for group in groups if name in _Late(group, _COMMANDS[group]).whole.commands]
    if named:
        return f" Did you mean `widenet {named[0]} {name}`?"
    near = alike(name, [*_COMMANDS, *extensions(COMMANDS), *_ELSEWHERE], cutoff=_MUCH_ALIKE)
    return f" Did you mean `{_ELSEWHERE[near[0]]}`?" if near and near[0] in _ELSEWHERE else ""


def _command_of(words: list[str]) -> str:
    """The command that some words begin with."""
    names, group = ["widenet"], typer.main.get_command(app)
    for word in words:
        commands = getattr(getattr(group, "whole", group), "commands", {})
        if word not in commands:
            break
        names.append(word)
        group = commands[word]
    return " ".join(names)


def _of_value(error: Any) -> str | None:
    """A sentence about a wrong value of an option; None for other mistakes."""
    mistakes = getattr(error.__cause__, "errors", None)
    if mistakes is None:
        return None
    first = mistakes()[0]
    rule = _RULES.get(first["type"])
    if rule is None:
        return None
    got = first["input"] if "ctx" in first else repr(first["input"])
    return f"{error.param.opts[0]} must be {rule.format(**first.get('ctx', {}))}; got {got}."
