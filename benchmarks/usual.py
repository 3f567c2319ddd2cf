"""Measures the default documents, with a validation part and without, beside the presets of a data set."""

import argparse

from benchmarks import goodbooks, gowalla
from benchmarks.places import workplace
from widenet import Dataset, split, train

_SETS = {"gowalla": gowalla, "goodbooks": goodbooks}
_KS = (20,)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument(
        "--sets", nargs="+", choices=sorted(_SETS), default=sorted(_SETS), help="folders of examples"
    )
    parser.add_argument("--share", type=float, default=0.1, help="share of each user's items for validation")


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 of the held-out part for trainings without documents."""
    print("| data | documents | Recall@20 | NDCG@20 |\n|---|---|---|---|")
    for name in asked.sets:
        with workplace() as folder:
            _SETS[name].prepare(folder)
            whole = Dataset.open(folder / "data")
            parted = split(folder / "data", folder / "parted", validation=asked.share)
            for described, data in (("default", whole), ("default, with a validation part", parted)):
                found = train(None, None, data, folder / described).evaluate(data, ks=_KS)
                row = f"{found['recall@20']:.4f} | {found['ndcg@20']:.4f}"
                print(f"| {name} | {described} | {row} |", flush=True)
