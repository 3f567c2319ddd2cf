"""The arguments of a split, each declared once: its type, default, bounds and sentence.

The signature and the docstring of `widenet.split` come from them, and the flags of `widenet data split`.
This module loads no library, because every start of the command line reads it.
"""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from widenet.arguments import Argument, check_bounds
from widenet.data.ingest_arguments import Moment

if TYPE_CHECKING:  # a dataset loads PyArrow
    from widenet.data.dataset import Dataset

LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class SplitArguments:
    """The arguments of `widenet.split`; raises OptionError for a seed out of bounds."""

    source: Annotated["Dataset | Path | str", Argument("The dataset to split.", form="DIR")]
    out: Annotated[Path | str, Argument("The dataset directory to make.")]
    _: KW_ONLY
    heldout: Annotated[float, Argument("Share of each user's items set aside for the final evaluation.")] = (
        0.0
    )
    validation: Annotated[float, Argument("Share of each user's items set aside for validation.")] = 0.0
    heldout_last: Annotated[
        int | str | None,
        Argument(
            "Set aside each user's last N items, or all items of the last 7d. See `keep_times`.",
            form="N|DURATION",
        ),
    ] = None
    validation_last: Annotated[
        int | str | None,
        Argument("As `heldout_last`, from the remaining items, for validation.", form="N|DURATION"),
    ] = None
    heldout_since: Annotated[
        Moment | None,
        Argument(
            "Set aside items from this time on: a number, a date, or '7 days' before the newest.", form="TIME"
        ),
    ] = None
    validation_since: Annotated[
        Moment | None, Argument("As `heldout_since`, from the remaining items, for validation.", form="TIME")
    ] = None
    seed: Annotated[int, Argument("Seed of the random choice.", at_least=0, at_most=LARGEST_SEED)] = 0
    field: Annotated[str, Argument("The field to split.")] = "items"
    overwrite: Annotated[
        bool, Argument("Replace an earlier dataset at `out`, once the new one is whole.")
    ] = False

    def __post_init__(self) -> None:
        check_bounds(self)
