"""Starts the pages: refuse what is wrong, bind the port, read the runs, answer until SIGTERM."""

from collections.abc import Callable
from pathlib import Path

from widenet.errors import OptionError
from widenet.serve.requests import guard_of
from widenet.serve.server import answer, bound
from widenet.ui.answers import Session
from widenet.ui.known_runs import KnownRuns
from widenet.ui.site import Pages
from widenet.ui.site_arguments import UiArguments
from widenet.ui.training_routes import MOST_BYTES, TrainingRoutes
from widenet.ui.trainings import TrainCommand, Trainings

_SECONDS_TO_END = 10


def serve(arguments: UiArguments, url: Callable[[str], None], train: TrainCommand) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        arguments: What to show, and where.
        url: Called with the address when the pages are ready.
        train: Gives the command that the pages run, if they may train.

    Raises:
        WidenetError: The folder, the token or the port cannot be used.
    """
    folder = Path(arguments.folder)
    guard = guard_of(arguments.host, arguments.token_file, arguments.allow_host, MOST_BYTES)
    _check_folders(folder, arguments)
    with bound(arguments.host, arguments.port) as listening:
        runs = KnownRuns(folder)
        runs.look()
        trainings = None
        if arguments.allow_training:
            further = None if arguments.datasets is None else Path(arguments.datasets)
            trainings = TrainingRoutes(runs, Trainings(folder, train), guard, further)
        pages = Pages(runs, Session(guard, listening.getsockname()[1]), trainings)
        answer(pages.app(), listening, _SECONDS_TO_END, url)


def _check_folders(folder: Path, arguments: UiArguments) -> None:
    """Raise OptionError for folders that are none, and for one that cannot hold new runs."""
    OptionError.require(folder.is_dir(), "must be a folder", place=folder)
    is_run = arguments.allow_training and (folder / "network.json").is_file()
    OptionError.require(not is_run, "is a run, and cannot hold new ones", place=folder)
    further = arguments.datasets
    OptionError.require(
        further is None or arguments.allow_training, "needs `allow_training`", option="datasets"
    )
    is_folder = further is None or Path(further).is_dir()
    OptionError.require(is_folder, "must be a folder", option="datasets", value=further)
