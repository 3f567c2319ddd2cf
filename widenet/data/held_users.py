"""Sets whole users aside: one dataset to train on, and one of users whom the network never sees."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet import randomness
from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.data.rules import FieldLayout
from widenet.data.split import LARGEST_SEED, check_divisible, check_moves, set_all_aside, split
from widenet.data.writer import check_free, write_dataset
from widenet.errors import DataError, OptionError


@typed
def split_users(
    source: Dataset | Path | str,
    out: Path | str,
    users_out: Path | str,
    *,
    users: float,
    heldout: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
    field: str = "items",
    overwrite: bool = False,
) -> tuple[Dataset, Dataset]:
    """Split a dataset by users: one dataset for training, and one of users that are set aside entirely.

    Both datasets have the same features in the same order, each with its own counts.

    Args:
        source: The dataset, or its directory.
        out: The dataset directory to make, without the users that are set aside.
        users_out: The dataset directory to make with these users alone.
        users: Share of the users to set aside, in (0, 1). Of the n users with at least two train entries, or
            with one if `heldout` is 1, round(users * n) are chosen at random.
        heldout: Share of the entries of each user in `users_out` that become the heldout part, as in `split`.
            An evaluation gives the network the rest, which is the train part. 1 leaves no rest: for labels,
            which the network does not read.
        validation: Share of the entries of each user in `out` that become the validation part, as in `split`.
        seed: Seed of the random choice.
        field: The field to split.
        overwrite: Whether to replace earlier datasets at `out` and `users_out`, each once the new one is
            whole.

    Returns:
        Both datasets, opened: `out` and `users_out`.

    Raises:
        DataError: A directory exists already, or a part would be empty.
        OptionError: A share or the seed is invalid.
    """
    out, users_out = Path(out), Path(users_out)
    _check_shares(users, heldout, validation, seed)
    for path, other in ((out, users_out), (users_out, out)):
        if path.resolve().is_relative_to(other.resolve()):
            raise DataError(f"{path}: `out` and `users_out` must be two directories, neither in the other.")
        check_free(path, overwrite)
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    check_divisible(
        dataset.path,
        dataset.field(field),
        ("heldout", "validation") if validation else ("heldout",),
    )
    lengths, least = dataset.entry_counts(field, slice(None)), 1 if heldout == 1 else 2
    held = _choose_users(dataset, lengths, least, users, seed)
    if heldout < 1:
        check_moves(dataset.path, lengths[held], {"heldout": heldout})
    if validation:
        check_moves(dataset.path, lengths[~held], {"validation": validation})
    facts = {"users": users, "seed": seed}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        _write(dataset, Path(folder) / "held", held, facts)
        if validation:
            _write(dataset, Path(folder) / "others", ~held, facts)
            training = split(
                Path(folder) / "others",
                out,
                validation=validation,
                seed=seed,
                field=field,
                overwrite=overwrite,
            )
        else:
            training = _write(dataset, out, ~held, facts, overwrite)
        others = Dataset.open(Path(folder) / "held")
        if heldout == 1:
            return training, set_all_aside(others, field, users_out, overwrite)
        aside = split(others, users_out, heldout=heldout, seed=seed, field=field, overwrite=overwrite)
        return training, aside


def _check_shares(users: float, heldout: float, validation: float, seed: int) -> None:
    if not 0 < users < 1:
        raise OptionError(f"`users` must be a share above 0 and below 1; got {users:g}.")
    if not 0 < heldout <= 1:
        raise OptionError(
            f"`heldout` must be a share above 0 and at most 1 of the held-out users' items; got {heldout:g}."
        )
    if not 0 <= validation < 1:
        raise OptionError(f"`validation` must be a share in [0, 1); got {validation:g}.")
    if not 0 <= seed <= LARGEST_SEED:
        raise OptionError(f"`seed` must be 0 to {LARGEST_SEED:,}; got {seed:,}.")


def _choose_users(dataset: Dataset, lengths: np.ndarray, least: int, share: float, seed: int) -> np.ndarray:
    """Choose the users to set aside, bool [N], among those with at least `least` of their `lengths` [N]."""
    eligible = np.flatnonzero(lengths >= least)
    number = round(share * len(eligible))
    if not 0 < number < dataset.num_examples:
        items = "an item" if least == 1 else "two items"
        rule = f"`users={share:g}` of {len(eligible):,} users with {items} is {number}"
        raise DataError(f"{dataset.path}: {rule}.")
    held = np.zeros(dataset.num_examples, dtype=bool)
    held[eligible[randomness.shuffled(seed, "split/users", 0, len(eligible), np.arange(number))]] = True
    return held


def _write(
    dataset: Dataset,
    out: Path,
    chosen: np.ndarray,
    facts: dict[str, float | int],
    overwrite: bool = False,
) -> Dataset:
    """Publish the chosen examples, bool [N], and open the dataset."""
    named = {name: field for name, field in dataset.fields.items() if field.vocabulary}
    counts = {name: np.zeros(field.width, dtype=np.int64) for name, field in named.items()}

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in dataset.record_batches():
            kept = batch.filter(pa.array(chosen[first : first + batch.num_rows]))
            first += batch.num_rows
            for name, count in counts.items():
                np.add.at(count, kept.column(name).flatten().to_numpy(), 1)
            yield kept

    write_dataset(
        out,
        layouts=[FieldLayout.of(field) for field in dataset.fields.values()],
        batches=batches(),
        vocabularies={name: dataset.vocabulary(name).record_batches(count) for name, count in counts.items()},
        name=dataset.manifest.name,
        has_weights=dataset.manifest.has_weights,
        source={**dataset.manifest.source, "split_users": dict(facts)},
        overwrite=overwrite,
        beside=dataset.beside,
    )
    return Dataset.open(out)
