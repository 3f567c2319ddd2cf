"""The command line of tests/cli and the groups of tests/parallel, for DSSTNE's commands."""

from tests.cli.conftest import launched, widenet, world
from tests.parallel.conftest import groups

__all__ = ["groups", "launched", "widenet", "world"]
