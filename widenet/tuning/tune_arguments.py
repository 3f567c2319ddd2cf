"""The arguments of a search, each declared once: type, default, bounds and sentence.

This module loads neither PyTorch nor Optuna, because the command line reads it for its help.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from widenet.arguments import Argument, Checked
from widenet.data.split import LARGEST_SEED
from widenet.runs.run_arguments import Device

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.tuning.results import StudyReport
    from widenet.tuning.space import SpaceSpec


@dataclass(frozen=True)
class TuneArguments(Checked):
    """The arguments of `widenet.tune`."""

    space: Annotated[
        Union["SpaceSpec", Mapping[str, Any], str, Path],
        Argument(
            "space.json: a network and a training document with open values.",
            form="SPACE",
        ),
    ]
    data: Annotated[
        "Dataset | str | Path",
        Argument("The dataset directory, with a validation part."),
    ]
    out: Annotated[str | Path, Argument("The directory of the study to make.")]
    _: KW_ONLY
    trials: Annotated[int, Argument("Number of pairs of documents to try.", at_least=1)] = 30
    workers: Annotated[
        int, Argument("Number of processes on this machine, each of which trains a trial.", at_least=1)
    ] = 1
    rungs: Annotated[
        int,
        Argument(
            "Number of rungs, the last of which is the whole training. Each has `reduction` times the epochs"
            " of the one before. 1 trains every trial to the end.",
            at_least=1,
        ),
    ] = 3
    reduction: Annotated[
        int, Argument("Of this many trials at a rung, one goes on; the others stop there.", at_least=2)
    ] = 3
    seed: Annotated[int, Argument("Start of the suggestions.", at_least=0, at_most=LARGEST_SEED)] = 0
    resume: Annotated[
        bool, Argument("Resume the study at `out`, or join it as a further worker while it runs.")
    ] = False
    device: Device = None
    report: Annotated["StudyReport | None", Argument("Follows the study.", flag="")] = None
