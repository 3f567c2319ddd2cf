"""The command line: its commands, and how it reports errors."""

import os
import signal
import sys
import threading
import traceback
from functools import cached_property
from importlib.metadata import EntryPoint
from inspect import signature
from types import FrameType
from typing import Annotated, Any

import typer

from widenet.arguments import check_local, must_be_local
from widenet.cli.declared import SeveralWords
from widenet.cli.output import flag_of, with_flags, write_options_of
from widenet.cli.processes import left_to_the_first, speaks
from widenet.errors import OptionError, WidenetError, in_one_line, is_out_of_memory, worded
from widenet.extensions import COMMANDS, Command, extensions, load

COMMAND_GROUPS = {
    "Data": {
        "data": Command("Make datasets from files, split and describe them", "widenet.cli.data:app"),
    },
    "Train": {
        "demo": Command("Train a recommender and show what it recommends", "widenet.cli.train:demo"),
        "schema": Command("Print the JSON Schema of a document", "widenet.cli.plan:schema"),
        "plan": Command("Tell what a training needs before it starts", "widenet.cli.plan:plan"),
        "train": Command("Train a network, or resume a training", "widenet.cli.train:train"),
        "tune": Command("Search for the best documents", "widenet.cli.tune:tune"),
        "evaluate": Command("Measure a run: recall, NDCG and other metrics", "widenet.cli.measure:evaluate"),
        "compare": Command("Compare two runs user by user", "widenet.cli.measure:compare"),
        "report": Command("Write an HTML page about a run, or compare several", "widenet.cli.measure:report"),
        "runs": Command("List runs: state, metric, and how they differ", "widenet.cli.measure:runs"),
    },
    "Use": {
        "recommend": Command("Recommend items to one person", "widenet.cli.use:recommend"),
        "predict": Command("Write recommendations for every user", "widenet.cli.use:predict"),
        "knn": Command("Find nearest neighbours among items or vectors", "widenet.cli.use:knn"),
        "quantize": Command("Make a smaller run in 8 bits of a trained one", "widenet.cli.use:quantize"),
        "fingerprint": Command("Print a SHA-256 of a run's weights", "widenet.cli.use:fingerprint"),
    },
    "Serve": {
        "serve": Command("Answer requests over HTTP", "widenet.cli.services:serve"),
        "ui": Command("Show runs in a browser, also while they train", "widenet.cli.services:ui"),
    },
    "Other programs": {
        "export": Command("Write a trained network for other programs", "widenet.cli.interchange:export"),
        "import": Command(
            "Make a run of another program's trained network", "widenet.cli.interchange:import_network"
        ),
    },
}
"""The commands in the order of work, by what they are for; those of extensions come after them."""


class _Commands(typer.core.TyperGroup):
    """Commands in the order of work, then those of extensions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}
        known: dict[str, Command | EntryPoint] = {**own, **extensions(COMMANDS), **own}
        self.commands = {name: _Late(name, command) for name, command in known.items()}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by what they are for."""
        *groups, (last, own) = ((title, [*names]) for title, names in COMMAND_GROUPS.items())
        known = {name for _, names in groups for name in [*names, *own]}
        for title, names in (*groups, (last, own + [name for name in self.commands if name not in known])):
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str()) for name in names])


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
            app.command(self.name, cls=SeveralWords)(target)
            whole = typer.main.get_command(app)
        whole.name = self.name
        _prepare(whole)
        return whole

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Pass the rest of the command line to the command itself."""
        return self.whole.make_context(info_name, args, parent, **extra)

    def _loaded(self) -> Command:
        command = load(self.command) if isinstance(self.command, EntryPoint) else self.command
        if not isinstance(command, Command):
            raise OptionError("must be a Command", place=f"{COMMANDS}: {self.name}", value=command)
        return command


def _prepare(command: Any) -> None:
    """Let a command, and those below it, write arguments as flags, and refuse URIs for local paths."""
    for each in getattr(command, "commands", {}).values():
        _prepare(each)
    if command.callback is None:
        return
    parameters, run = signature(command.callback).parameters, command.invoke

    def invoke(context: Any) -> Any:
        write_options_of(command)
        for name, value in context.params.items():
            if name in parameters and must_be_local(parameters[name].annotation):
                for path in value if isinstance(value, list | tuple) else [value]:
                    check_local(name, path)
        return run(context)

    command.invoke = invoke


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
_MISTAKE = 2
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
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except Exception as error:
        sys.exit(_report(error))
    if status == _INTERRUPTED and speaks():
        typer.echo("widenet: interrupted.", err=True)
    sys.exit(status)


def _report(error: Exception) -> int:
    """Print the error of a command line, and return its status; raises one that is no user's mistake."""
    status = error.status if isinstance(error, WidenetError) else _MISTAKE
    sentence = _sentence(error)
    if os.environ.get("WIDENET_DEBUG"):
        traceback.print_exc()
    if status != _MISTAKE or not left_to_the_first():
        typer.echo(sentence, err=True)
    return status


def _sentence(error: Exception) -> str:
    if isinstance(error, WidenetError):
        return f"widenet: {in_one_line(with_flags(worded(error, flag_of)))}"
    if isinstance(error, _USAGE_ERROR):
        return _usage(error)
    if is_out_of_memory(error):
        return "widenet: there is not enough memory."
    if not isinstance(error, OSError):
        raise error
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if error.filename is None and frame.f_code is typer.echo.__code__:
        _drop_output()
        error.filename = "standard output"
    return f"widenet: {error.filename or 'a file'}: {error.strerror or error}."


def _drop_output() -> None:
    """Let nothing more reach standard output, not even what waits there: Python would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Any) -> str:
    """Return what is wrong with the words of a command line, or the help if there are none."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    command = error.ctx.command_path if error.ctx is not None else "widenet"
    problem = " ".join(error.format_message().replace("Value error, ", "").split())
    problem = problem if problem.endswith((".", "?")) else f"{problem}."
    return f"{command}: {problem} See `{command} --help`."
