"""`python -m benchmarks NAME`: run one measurement, or all of them."""

import argparse

from benchmarks import goodbooks, gowalla, kills, memory, processes

_ALL = {"gowalla": gowalla.run, "goodbooks": goodbooks.run, "memory": memory.run, "processes": processes.run, "kills": kills.run}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Print measured figures; see docs/benchmarks.md.")
    parser.add_argument("name", nargs="*", choices=[*_ALL, []], help=f"one of {', '.join(_ALL)}; all if not given")
    for name in parser.parse_args().name or _ALL:
        _ALL[name]()


if __name__ == "__main__":
    main()
