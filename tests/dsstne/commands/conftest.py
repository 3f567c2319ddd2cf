"""The command line of tests/cli, for DSSTNE's commands."""

from tests.cli.conftest import launched, widenet, world

__all__ = ["launched", "widenet", "world"]
