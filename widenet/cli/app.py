"""The command line: its commands, and how it reports errors."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from importlib.metadata import EntryPoint
from inspect import signature
from types import FrameType
from typing import Annotated, Any

import typer

from widenet.arguments import check_local, must_be_local
from widenet.cli.processes import left_to_the_first, speaks
from widenet.errors import OptionError, WidenetError, in_one_line, is_out_of_memory, worded
from widenet.extensions import COMMANDS, Command, extensions, load

_COMMANDS = {
    "demo": Command("Train a recommender and show what it recommends", "widenet.cli.demo:demo"),
    "data": Command("Make datasets from files, split and describe them", "widenet.cli.data:app"),
    "schema": Command("Print the JSON Schema of a document", "widenet.cli.plan:schema"),
    "plan": Command("Tell what a training needs before it starts", "widenet.cli.plan:plan"),
    "train": Command("Train a network, or resume a training", "widenet.cli.train:train"),
    "tune": Command("Search for the best documents", "widenet.cli.tune:tune"),
    "evaluate": Command("Measure a run: recall, NDCG and other metrics", "widenet.cli.model:evaluate"),
    "compare": Command("Compare two runs user by user", "widenet.cli.model:compare"),
    "recommend": Command("Recommend items to one person", "widenet.cli.recommend:recommend"),
    "predict": Command("Write recommendations for every user", "widenet.cli.model:predict"),
    "serve": Command("Answer requests over HTTP", "widenet.cli.services:serve"),
    "ui": Command("Show runs in a browser, also while they train", "widenet.cli.services:ui"),
    "report": Command("Write an HTML page about a run, or compare several", "widenet.cli.report:report"),
    "runs": Command("List runs: state, metric, and how their documents differ", "widenet.cli.report:runs"),
    "knn": Command("Find nearest neighbours among items or vectors", "widenet.cli.knn:app"),
    "neighbourhood": Command(
        "Give a trained run the best neighbourhood term", "widenet.cli.made_runs:neighbourhood"
    ),
    "quantize": Command("Make a smaller run in 8 bits of a trained one", "widenet.cli.made_runs:quantize"),
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
        _refuse_uris(whole)
        return whole

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Pass the rest of the command line to the command itself."""
        return self.whole.make_context(info_name, args, parent, **extra)

    def _loaded(self) -> Command:
        command = load(self.command) if isinstance(self.command, EntryPoint) else self.command
        if not isinstance(command, Command):
            raise OptionError("must be a Command", place=f"{COMMANDS}: {self.name}", value=command)
        return command


def _refuse_uris(command: Any) -> None:
    """Let a command, and those below it, refuse URIs for paths that must be local, as their types say."""
    for each in getattr(command, "commands", {}).values():
        _refuse_uris(each)
    annotations = signature(command.callback).parameters if command.callback is not None else {}
    for parameter in command.params:
        if parameter.name in annotations and must_be_local(annotations[parameter.name].annotation):
            parameter.process_value = _with_local_paths(parameter.name, parameter.process_value)


def _with_local_paths(name: str, process: Any) -> Any:
    def checked(context: Any, word: Any) -> Any:
        value = process(context, word)
        for path in value if isinstance(value, list | tuple) else [value]:
            check_local(name, path)
        return value

    return checked


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
_OUTPUT = "standard output"
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
    words = sys.argv[1:] if arguments is None else arguments
    try:
        status = _run(arguments)
    except WidenetError as error:
        _trace()
        if error.status != 2 or not left_to_the_first():
            typer.echo(f"widenet: {in_one_line(worded(error, _flags(words)))}", err=True)
        sys.exit(error.status)
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _trace()
        typer.echo("widenet: there is not enough memory.", err=True)
        sys.exit(2)
    except OSError as error:
        _trace()
        place = _place(error)
        typer.echo(f"widenet: {place}: {error.strerror or error}.", err=True)
        if place == _OUTPUT:
            _drop_output()
        sys.exit(2)
    except _USAGE_ERROR as error:
        if not left_to_the_first():
            _show_usage(error, words)
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
    command = error.ctx.command_path if error.ctx is not None else _command_of(words)[0]
    problem = " ".join(error.format_message().replace("Value error, ", "").split())
    problem = problem if problem.endswith((".", "?")) else f"{problem}."
    typer.echo(f"{command}: {problem} See `{command} --help`.", err=True)


def _command_of(words: list[str]) -> tuple[str, Any]:
    """The command that some words begin with: its name and itself."""
    names, command = ["widenet"], typer.main.get_command(app)
    for word in words:
        commands = getattr(command, "commands", {})
        if word in commands:
            names.append(word)
            command = getattr(commands[word], "whole", commands[word])
        elif len(names) > 1 or not word.startswith("-"):
            break
    return " ".join(names), command


def _flags(words: list[str]) -> Callable[[str], str]:
    """Return a function that writes an argument as the command of some words does: a flag, or a metavar."""
    written = {}
    with suppress(WidenetError):  # a damaged extension
        for each in _command_of(words)[1].params:
            is_option = each.param_type_name == "option"
            written[each.name] = each.opts[0] if is_option else each.metavar or each.name.upper()
    return lambda name: written.get(name, name)
