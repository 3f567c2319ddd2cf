"""`python -m benchmarks NAME`: run one measurement; without a name, those of speed, which take minutes."""

import argparse
from pathlib import Path
from types import ModuleType

from benchmarks import (
    catalogue,
    checkpoints,
    choices,
    cold,
    days,
    defaults,
    diginetica,
    disk,
    divided,
    few,
    first,
    fuzz,
    goodbooks,
    gowalla,
    gpu,
    ingest,
    install,
    kills,
    memory,
    movielens,
    neighbourhoods,
    parallel,
    plans,
    portable,
    processes,
    reading,
    sampled,
    sequences,
    serve,
    smaller,
    spark,
    sparse,
    speed,
    topk,
    trainers,
    transfer,
    tune,
    usual,
)

_SPEED: dict[str, ModuleType] = {
    "speed": speed,
    "sparse": sparse,
    "topk": topk,
    "ingest": ingest,
    "parallel": parallel,
    "plans": plans,
}
_ALONE: dict[str, ModuleType] = {
    "trainers": trainers,
    "gpu": gpu,
    "portable": portable,
    "fuzz": fuzz,
    "spark": spark,
    "movielens": movielens,
    "diginetica": diginetica,
    "few": few,
    "first": first,
    "install": install,
    "catalogue": catalogue,
    "divided": divided,
    "serve": serve,
    "smaller": smaller,
    "tune": tune,
    "gowalla": gowalla,
    "goodbooks": goodbooks,
    "neighbourhoods": neighbourhoods,
    "choices": choices,
    "usual": usual,
    "defaults": defaults,
    "sequences": sequences,
}
_OTHERS: dict[str, ModuleType] = {
    "cold": cold,
    "days": days,
    "transfer": transfer,
    "sampled": sampled,
    "memory": memory,
    "processes": processes,
    "kills": kills,
    "reading": reading,
    "checkpoints": checkpoints,
    "disk": disk,
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Print measured figures, such as those in benchmarks/results.",
    )
    names = whole.add_subparsers(metavar="NAME", help=f"all of {', '.join(_SPEED)} if not given")
    for name, module in {**_SPEED, **_ALONE}.items():
        child = names.add_parser(name, help=module.__doc__)
        child.add_argument(
            "--out",
            type=Path,
            default=Path("runs/benchmarks"),
            help="folder of the JSON, the tables and the plot",
        )
        module.options(child)
        child.set_defaults(run=module.run)
    for name, module in _OTHERS.items():
        names.add_parser(name, help=module.__doc__).set_defaults(run=lambda _, module=module: module.run())
    return whole


def main() -> None:
    """Parse and run."""
    asked = parser().parse_args()
    if "run" in asked:
        asked.run(asked)
        return
    for name in _SPEED:
        default = parser().parse_args([name])
        default.run(default)


if __name__ == "__main__":
    main()
