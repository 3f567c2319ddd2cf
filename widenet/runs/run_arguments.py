"""The arguments of trainings and of trained models, each declared once: type, default, bounds and sentence.

The signatures and docstrings of `widenet.train` and of the methods of `widenet.Model` come from them, and
the flags of `widenet train`, `evaluate`, `compare`, `predict` and `recommend`. This module loads neither
PyTorch nor PyArrow, because every start of the command line reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from widenet.arguments import IN_STORES, Argument, Checked
from widenet.errors import OptionError
from widenet.parallel.launch import TIMEOUT_SECONDS
from widenet.spec.metric_names import DEFAULT_KS
from widenet.stores.uri import is_uri, shown
from widenet.tracking import uri_of

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.model.network import Network
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec
    from widenet.training.state import Report


Device = Annotated[str | None, Argument("cpu or cuda. Default: cuda if there is a device.")]
Timeout = Annotated[
    float,
    Argument(
        "Seconds without a sign of life after which the other processes report a process as lost: it is"
        " stopped, or its machine or network is down. They wait for one that is only slow.",
        at_least=1,
    ),
]
Output = Annotated[str | None, Argument("The output layer, if the network has several.")]
ExcludeSeen = Annotated[bool, Argument("Leave out items that the user is known to have.", flag="")]
SetAside = Literal["validation", "heldout"]
Part = Annotated[SetAside, Argument("The part that was set aside for evaluation.")]
Ks = Annotated[Sequence[int], Argument("Lengths of the lists.", flag="")]
Advance = Annotated[
    Callable[[int], None] | None, Argument("Called with the number of examples of each batch.", flag="")
]
Fields = Annotated[
    Mapping[str, Any] | None,
    Argument(
        "What is known beside items, by field: ids or titles of categories, or the numbers of a dense field."
        " Nothing is known of the other fields.",
        flag="",
    ),
]
Never = Annotated[
    str | Path | Sequence[str | int] | None,
    Argument("File of item ids, one per line, that are never recommended."),
]
Only = Annotated[
    str | Path | Sequence[str | int] | None,
    Argument("File of item ids, one per line: only these are recommended."),
]
NeverFor = Annotated[
    str | Path | Mapping[Any, Any] | None,
    Argument("CSV file (user,item) of items that are never recommended to a user."),
]
OnlyFor = Annotated[
    str | Path | Mapping[Any, Any] | None,
    Argument(
        "CSV file (user,item) of the only items that are recommended to a user; other users may get all."
    ),
]
Weights = Annotated[
    str | Path | Mapping[Any, Any] | None,
    Argument("CSV file (item,weight) of factors on scores, at least 0. Weight 0 is never recommended."),
]
AtMost = Annotated[
    Mapping[str, int] | None,
    Argument("Recommend at most N items of each category of an attribute.", form="ATTRIBUTE=N"),
]
Where = Annotated[
    Mapping[str, Any] | None,
    Argument(
        "Recommend only items whose boolean attribute is true, or that have one of these values.",
        form="ATTRIBUTE[=VALUE]",
    ),
]


@dataclass(frozen=True)
class TrainArguments(Checked):
    """The arguments of `widenet.train`."""

    network: Annotated[
        Union["NetworkSpec", Mapping[str, Any], str, Path, None],
        Argument("network.json: the layers. `widenet schema network` describes it.", form="NETWORK"),
    ]
    training: Annotated[
        Union["TrainingSpec", Mapping[str, Any], str, Path, None],
        Argument("training.json: optimizer, epochs, evaluation.", form="TRAINING"),
    ]
    data: Annotated["Dataset | str | Path", Argument("The dataset directory.")]
    out: Annotated[str | Path, IN_STORES, Argument("The run directory to make.")]
    _: KW_ONLY
    resume: Annotated[bool, Argument("Resume from the newest checkpoint of `out`.")] = False
    overwrite: Annotated[
        bool, Argument("Replace an earlier run at `out`, once the new one has a checkpoint.")
    ] = False
    start_from: Annotated[
        str | Path | None,
        IN_STORES,
        Argument(
            "Start with the weights of another run that have the same names and sizes, matched by feature.",
            flag="from",
        ),
    ] = None
    no_validation: Annotated[
        bool,
        Argument(
            "Train on all items, for all epochs of the default training document. Without it, that document"
            " ends the training early by a validation part, and widenet sets one aside if the dataset has"
            " none."
        ),
    ] = False
    device: Device = None
    weights_in: Annotated[
        Literal["device", "host", "disk"] | None,
        Argument(
            "Where wide weights and their optimizer state lie: in the device's memory; for CUDA in the"
            " host's, whose tiles are copied to the device and back; or for a CPU in a file, of which memory"
            " holds what a step works on. On a CPU, host is device. Default: device if they fit, else host or"
            " disk. The weights that come out are the same.",
        ),
    ] = None
    scratch: Annotated[
        str | Path | None,
        Argument("Folder of that file, which is gone when the process ends. Default: `out`."),
    ] = None
    timeout: Timeout = TIMEOUT_SECONDS
    track: Annotated[
        str | None,
        Argument(
            "Also record the training in this MLflow store, such as mlflow:http://localhost:5000."
            ' Default: the "track" of training.json.',
            form="mlflow:URI",
        ),
    ] = None
    report: Annotated["Report | None", Argument("Follows the training.", flag="")] = None
    interrupted: Annotated[
        Callable[[], bool] | None,
        Argument(
            "Called in every step; when it returns true, the training saves a checkpoint and raises"
            " KeyboardInterrupt. None: Ctrl-C and SIGTERM do so.",
            flag="",
        ),
    ] = None
    after_epoch: Annotated[
        "Callable[[Network, int], bool | None] | None",
        Argument(
            "Called in every process with the network and the number of finished epochs; when it returns"
            " true, the training saves a checkpoint and raises KeyboardInterrupt.",
            flag="",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.track, str):
            uri_of(self.track)  # refuses another one before any work
        if self.no_validation and (self.resume or self.training is not None):
            raise OptionError("is for a new training without a training document", option="no_validation")
        if self.overwrite and self.resume:
            raise OptionError("and `resume` exclude each other", option="overwrite")
        if self.overwrite and isinstance(self.out, str | Path) and is_uri(self.out):
            raise OptionError("is for local runs", option="overwrite", value=shown(self.out))


@dataclass(frozen=True)
class LoadArguments(Checked):
    """The arguments of `widenet.Model.load`."""

    run: Annotated[
        str | Path, IN_STORES, Argument("The run directory that `widenet train` made.", form="RUN")
    ]
    device: Device = None
    _: KW_ONLY
    timeout: Timeout = TIMEOUT_SECONDS


@dataclass(frozen=True)
class EvaluateArguments(Checked):
    """The arguments of `widenet.Model.evaluate`."""

    data: Annotated["Dataset | str | Path", Argument("The dataset directory.")]
    part: Part = "heldout"
    ks: Ks = DEFAULT_KS
    output: Output = None
    exclude_seen: ExcludeSeen = True
    advance: Advance = None
    _: KW_ONLY
    interval: Annotated[
        float | None,
        Argument(
            "Also compute confidence intervals of the means at this level, such as 0.95.",
            form="LEVEL",
            at_least=0.5,
            at_most=0.999,
        ),
    ] = None
    baselines: Annotated[
        bool,
        Argument(
            "Also measure popularity, item-based neighbours, SLIM, EASE up to 20,000 items, and ALS if"
            " implicit is installed."
        ),
    ] = False
    beyond: Annotated[
        bool, Argument("Also compute novelty, diversity and the Gini index of the recommended items.")
    ] = False
    propensity: Annotated[
        Sequence[float] | None,
        Argument(
            "Also compute propensity-scored precision, psp@k, with these two constants, such as 0.55,1.5.",
            form="A,B",
        ),
    ] = None
    say: Annotated[
        Callable[[str], None] | None,
        Argument("Called with a sentence before each of the baselines is computed.", flag=""),
    ] = None
    groups: Annotated[
        bool,
        Argument("Also compute the means of new, casual and heavy users, and of head and tail items."),
    ] = False


@dataclass(frozen=True)
class CompareArguments(Checked):
    """The arguments of `widenet.compare`."""

    first: Annotated[str | Path, IN_STORES, Argument("The first run directory.", form="RUN")]
    second: Annotated[str | Path, IN_STORES, Argument("The second run directory.", form="OTHER")]
    data: Annotated["Dataset | str | Path", Argument("The dataset directory.")]
    part: Part = "heldout"
    ks: Ks = DEFAULT_KS
    _: KW_ONLY
    output: Output = None
    exclude_seen: ExcludeSeen = True
    level: Annotated[float, Argument("Confidence level of the intervals.", at_least=0.5, at_most=0.999)] = (
        0.95
    )
    device: Device = None
    timeout: Timeout = TIMEOUT_SECONDS
    advance: Advance = None


@dataclass(frozen=True)
class _RankingArguments(Checked):
    """What `widenet.Model.predict` and `recommend` rank, and what they leave out."""

    _: KW_ONLY
    output: Output = None
    exclude_seen: ExcludeSeen = True
    never: Never = None
    only: Only = None
    never_for: NeverFor = None
    only_for: OnlyFor = None
    weights: Weights = None
    at_most: AtMost = None
    where: Where = None


@dataclass(frozen=True)
class PredictArguments(_RankingArguments):
    """The arguments of `widenet.Model.predict`."""

    data: Annotated[
        "Dataset | str | Path",
        Argument("The dataset directory; every user in it gets recommendations."),
    ]
    k: Annotated[int, Argument("Number of recommendations for each user.", at_least=1)] = 100
    _: KW_ONLY
    say: Annotated[
        Callable[[str], None] | None,
        Argument(
            "Called after the last block if the dataset lacks users of `never_for` or `only_for`.", flag=""
        ),
    ] = None
    part: Annotated[
        SetAside | None,
        Argument("Recommend as an evaluation of this part does, which sees neither it nor later parts."),
    ] = None


@dataclass(frozen=True)
class RecommendArguments(_RankingArguments):
    """The arguments of `widenet.Model.recommend`."""

    items: Annotated[Any, Argument("An id, a title or part of a title.", is_repeated=True)] = ()
    k: Annotated[int, Argument("Number of recommendations.", at_least=1)] = 10
    _: KW_ONLY
    users: Annotated[
        Any, Argument("The id of a user of `data`, or a list of them, instead of items.", flag="")
    ] = None
    data: Annotated[
        "Dataset | str | Path | None",
        Argument("The dataset of the users, with the items that they have. Default: that of the training."),
    ] = None
    values: Annotated[
        Sequence[float] | Sequence[Sequence[float]] | None,
        Argument(
            "One number for each item, for networks trained with values; a list of them for each of several"
            " baskets.",
            flag="",
        ),
    ] = None
    fields: Fields = None
    never_for: Annotated[
        str | Path | Mapping[Any, Any] | None,
        Argument(
            "For `users` and several baskets: CSV file (user,item) of items that are never recommended to a"
            " user, or a list of ids for each. The baskets of a list have the numbers 0, 1 and so on.",
            flag="",
        ),
    ] = None
    only_for: Annotated[
        str | Path | Mapping[Any, Any] | None,
        Argument(
            "As `never_for`: the only items that are recommended to a user.",
            flag="",
        ),
    ] = None
    format: Annotated[
        Literal["pandas", "polars", "arrow"] | None,
        Argument("Return a table of this kind, with a row for each recommendation.", flag=""),
    ] = None
