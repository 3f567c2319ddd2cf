"""Networks of other programs, told apart by what their files hold."""

from collections.abc import Callable, Mapping
from pathlib import Path

from widenet.data.messages import ignore_message
from widenet.errors import DataError, OptionError
from widenet.interop.formats import ImportOptions, format_of
from widenet.runs import Model
from widenet.stores.uri import check_local


def import_network(
    path: str | Path,
    out: str | Path,
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    features: Mapping[str, Path] | Path | None = None,
    fields: Mapping[str, str] | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
) -> Model:
    """Import a trained network as a run: it predicts at once, and trainings may begin with its weights.

    Args:
        path: A file of a known format.
        out: The run directory to make.
        weights: A second file with the weights, if the format has them there: a .caffemodel for a .prototxt.
        data: A dataset with the network's fields. Without it, dense inputs stay dense, and features are named
            as the file does, or by their index.
        features: Index files of features, for DSSTNE's networks.
        fields: Other names for the network's inputs and outputs, as the dataset calls them.
        overwrite: Whether to replace an earlier run at `out`.
        say: Called with what the file is, and what is not what it seems.

    Returns:
        The model of the run.

    Raises:
        DataError: The file is damaged, or has layers without a counterpart, which are named.
        OptionError, FitError, CheckpointError: The options do not fit the file.
    """
    for name, place in (("path", path), ("out", out), ("weights", weights)):
        check_local(f"`{name}`", place)
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check the path.")
    found = format_of(path)
    if weights is not None and "weights" not in found.TAKES:
        raise OptionError(f"weights belong to a .prototxt; got {path}, which holds its own. Leave them out.")
    if features is not None and "features" not in found.TAKES:
        raise OptionError(
            f"`features` are index files, for networks that know features by index; {path} is {found.NAME}."
            " Give `data`, a dataset with names."
        )
    tell = say or ignore_message
    model: Model = found.import_model(
        path,
        out,
        ImportOptions(
            None if weights is None else Path(weights),
            None if data is None else Path(data),
            features,
            fields or {},
            tell,
            overwrite,
        ),
    )
    tell(f"{path}: {found.NAME}.")
    return model
